# The image of `dwell`: built on Debian, run on Debian slim, as a user without rights.
# The images that it stands on, by digest; another one is an argument away: docker build --build-arg RUST_IMAGE=…
ARG RUST_IMAGE=docker.io/library/rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082
ARG DEBIAN_IMAGE=docker.io/library/debian:bookworm-20260824-slim@sha256:88200866dfff7ea7f5cbcb6ec7c8a701889efe6fe859fe64d6990e4b07ea4171

FROM ${RUST_IMAGE} AS build
# For Kafka's client library and its OpenSSL.
RUN apt-get update && apt-get install -y --no-install-recommends g++ make perl && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# On arm64 pages have 4, 16 or 64 KiB: the allocator is built for the largest.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    if [ "$(uname -m)" = aarch64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi; \
    cargo build --release --locked --bin dwell && cp target/release/dwell /dwell

FROM ${DEBIAN_IMAGE}
# The certificates that TLS to brokers and Redis trusts.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 65532 dwell \
    && useradd --system --uid 65532 --gid 65532 --no-create-home --shell /usr/sbin/nologin dwell
COPY --from=build /dwell /usr/local/bin/dwell
COPY config /etc/dwell
# Without a mount over it, the environment alone has the settings.
RUN echo '# Mount your settings here, or set DWELL_ variables.' > /etc/dwell/dwell.toml
USER 65532:65532
# Mount your settings there, or name another file here and not by `-c`: every command in the container reads
# it, and so does the health check.
ENV DWELL_CONFIG=/etc/dwell/dwell.toml
# The probes and the metrics. The admin API is on loopback until http.listen and a token say otherwise.
EXPOSE 9464
# Healthy once Redis was reached and every ingest reads.
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s CMD ["dwell", "ready"]
ENTRYPOINT ["dwell"]
CMD ["run"]
