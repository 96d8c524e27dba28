# syntax=docker/dockerfile:1
# The image of `dwell`: built on Debian, run on Debian slim, as a user without rights.
FROM rust:1.95-slim-bookworm AS build
# For Kafka's client library and its OpenSSL.
RUN apt-get update && apt-get install -y --no-install-recommends g++ make perl && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# On arm64 pages have 4, 16 or 64 KiB: the allocator is built for the largest.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    if [ "$(uname -m)" = aarch64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi; \
    cargo build --release --locked --bin dwell && cp target/release/dwell /dwell

FROM debian:bookworm-slim
# The certificates that TLS to brokers and Redis trusts.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 65532 --no-create-home --shell /usr/sbin/nologin dwell
COPY --from=build /dwell /usr/local/bin/dwell
COPY config /etc/dwell
USER 65532
EXPOSE 7464 9464
ENTRYPOINT ["dwell"]
# Mount your settings there, or name another file.
CMD ["run", "-c", "/etc/dwell/dwell.toml"]
