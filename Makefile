# Everything a fresh machine needs to build, show and test Dwell. Prerequisites: Rust, a C compiler,
# make; `tools` sees to what else compiling takes.
# `make help` says what there is.

.DEFAULT_GOAL := help
.PHONY: help demo bench chaos model fuzz upgrade test test-fast test-newer newer check fmt lint links docs docs-site deny features tools servers kafka rabbitmq nginx promtool \
	clients clients-test browser helm chart openapi reference clean-servers

# Tests and demo start these themselves, on free ports of 127.0.0.1. `make servers` puts them there.
BIN := $(CURDIR)/.servers/bin
SERVERS := DWELL_REDIS_SERVER='$(BIN)/redis-server' DWELL_REDIS_WAITAOF_SERVER='$(BIN)/redis-server-waitaof' DWELL_NATS_SERVER='$(BIN)/nats-server'
KAFKA := DWELL_KAFKA_LIBS='$(CURDIR)/.servers/kafka'
RABBITMQ := DWELL_RABBITMQ_SERVER='$(BIN)/rabbitmq-server'
NEWER_SERVERS = DWELL_REDIS_SERVER='$(NEWER)/valkey-server' DWELL_REDIS_WAITAOF_SERVER='$(NEWER)/redis-server' DWELL_VALKEY_SERVER='$(NEWER)/valkey-server' \
	DWELL_NATS_SERVER='$(NEWER)/nats-server' DWELL_RABBITMQ_SERVER='$(NEWER)/rabbitmq-server' DWELL_KAFKA_LIBS='$(CURDIR)/.servers/newer/kafka'
NGINX := DWELL_NGINX='$(BIN)/nginx'
PROMTOOL := DWELL_PROMTOOL='$(BIN)/promtool'
CLIENTS := DWELL_CLIENTS='$(CURDIR)/.servers/clients'
CHROMIUM := DWELL_CHROMIUM='$(BIN)/chromium' DWELL_BROWSER='$(CURDIR)/.servers/browser'

# Where cargo puts what it builds.
BUILT := $(or $(CARGO_TARGET_DIR),target)
# Dwell and its laboratory, with one set of features: each demo and each campaign runs this build.
BUILD_BOTH := cargo build --locked --package dwell --package dwell-lab --bin dwell --bin dwell-lab

help: ## say what each target does
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Which broker the demo shows: nats, kafka or amqp; or with a `dwell run` and no broker: queue, where
# consumers fetch, and http, where Dwell sends the jobs to URLs.
BROKER := nats
DEMO_SERVERS := $(if $(filter kafka,$(BROKER)),kafka) $(if $(filter amqp,$(BROKER)),rabbitmq)

demo: tools servers $(DEMO_SERVERS) ## start private servers and a bridge, send jobs, show what arrives and how late; BROKER=nats, kafka, amqp, or without a broker queue or http
	$(BUILD_BOTH)
	$(SERVERS) $(KAFKA) $(RABBITMQ) '$(BUILT)/debug/dwell-lab' demo --broker $(BROKER)

# How much is measured: QUICK=1 is a short form; RUNS and BIG as scripts/bench.sh says. PEERS: the folder
# of a harness that measures relays and native delays that others wrote; with it QUEUES: that of one for
# queues on Redis (scripts/peers.py).
QUICK :=
PEERS :=
QUEUES :=
BENCH_ON := $(if $(filter file,$(origin BROKER)),nats kafka amqp,$(BROKER))

bench: tools servers kafka rabbitmq ## measure a standard set on private servers, write docs/reference/measured; QUICK=1, BROKER=, RUNS=, PEERS=, QUEUES=
	$(BUILD_BOTH) --release
	$(SERVERS) $(KAFKA) $(RABBITMQ) QUICK=$(QUICK) DWELL_BENCH_PROGRAM='$(or $(DWELL_BENCH_PROGRAM),$(BUILT)/release/dwell-lab)' scripts/bench.sh $(BENCH_ON)
	$(if $(PEERS),$(SERVERS) $(KAFKA) $(RABBITMQ) scripts/peers.py '$(PEERS)' docs/reference/measured/peers.md --rounds $(or $(RUNS),5) \
		--dwell '$(BUILT)/release/dwell' --lab '$(BUILT)/release/dwell-lab' $(if $(QUEUES),--queues '$(QUEUES)'))

# How long faults go on, with which seed (none: a new one), on which brokers (all three in turn,
# unless BROKER is given) and which kind of Redis (single, cluster or sentinel). DENSE=1: short faults
# that follow each other fast. HTTP=1: jobs for URLs too, and faults of their host.
DURATION := 60s
SEED :=
REDIS := single
DENSE :=
HTTP :=
CHAOS_ON := $(if $(filter file,$(origin BROKER)),nats kafka amqp,$(BROKER))
CHAOS_OUT := $(CURDIR)/target/chaos

chaos: tools servers kafka rabbitmq ## break Dwell, Redis and the broker under load, and check that no promise broke; DURATION=, SEED=, BROKER=, REDIS=, DENSE=1, HTTP=1
	$(BUILD_BOTH)
	@failed=0; for broker in $(CHAOS_ON); do \
		$(SERVERS) $(KAFKA) $(RABBITMQ) '$(BUILT)/debug/dwell-lab' chaos run --broker $$broker --redis $(REDIS) --duration $(DURATION) $(if $(SEED),--seed $(SEED)) $(if $(DENSE),--dense) $(if $(HTTP),--http) \
			--out '$(CHAOS_OUT)' || failed=1; \
	done; exit $$failed

# `make test` visits a part of the states.
model: tools servers ## run the scripts of the store through every state of every scene, in memory: about a quarter of an hour once built
	$(SERVERS) DWELL_MODEL=full cargo test --locked --release --package dwell-store --test model -- --nocapture

# Tests wait for servers most of their time: two a core run side by side.
export RUST_TEST_THREADS ?= $(shell expr 2 '*' "$$(getconf _NPROCESSORS_ONLN)")

test: tools servers kafka rabbitmq nginx promtool clients browser ## run every test, on real servers of its own
	@# The clients and the examples in the docs first, so that the tests' own summary stands last.
	scripts/clients-test.sh
	cargo test --workspace --locked --doc
	$(SERVERS) $(KAFKA) $(RABBITMQ) $(NGINX) $(PROMTOOL) $(CLIENTS) $(CHROMIUM) scripts/suites.sh cargo test --workspace --locked --no-fail-fast --lib --bins --tests

# Unit tests, the command line, the docs, and the agents on a broker in memory.
test-fast: tools servers ## run the tests that need no broker, with a Redis of their own: under two minutes once built
	$(SERVERS) scripts/suites.sh cargo test --workspace --locked --no-fail-fast --lib --bins --test command_line --test docs --test it --test memory --test corpus

# The same servers in the versions of the next Debian, and a newer Kafka; all else as in `test`. Valkey
# stands in for Redis, Redis for the Redis that has WAITAOF.
NEWER := $(CURDIR)/.servers/newer/bin
test-newer: tools servers kafka newer promtool clients browser ## the suites of the connectors, the store, the queues and the routes on RabbitMQ 4.3, Kafka 4.4, Valkey 9.1, Redis 8.0 and NATS 2.15; needs root
	@$(NEWER_SERVERS) $(PROMTOOL) $(CLIENTS) $(CHROMIUM) bash -c 'set -o pipefail; begun=$$SECONDS; failed=0; \
		cargo test --workspace --locked --no-fail-fast --test amqp --test kafka --test nats || failed=1; \
		cargo test --workspace --locked --no-fail-fast --test live -- routes:: peers:: verdicts:: store:: http::queues http::long_poll http::rotated redis_kinds::versions || failed=1; \
		echo "test-newer: $$((SECONDS - begun)) s"; exit $$failed'

SECONDS := 600
fuzz: tools ## look for inputs that break a promise of the parsers, led by coverage; SECONDS= in total
	scripts/fuzz.sh $(SECONDS)

# The revision whose binary runs beside the one of this tree.
OLD := HEAD~1
upgrade: tools servers ## an old binary beside the new one, on one namespace; OLD= a git revision
	$(SERVERS) scripts/upgrade.sh $(OLD)

# The release whose API is the one to keep.
SINCE :=
semver: ## does the API of dwell-engine keep what the last release promised? SINCE= another revision; needs cargo-semver-checks
	scripts/semver.sh $(SINCE)

# What to leave out, on a machine that lacks a tool: SKIP='fmt lint'.
SKIP :=
check: $(filter-out $(SKIP),fmt lint features docs links deny) ## formatting, lints, features, docs, links, licences and banned crates; SKIP= leaves some out

fmt: ## is every file formatted?
	cargo fmt --all --check

lint: tools ## clippy, where a warning is an error
	cargo clippy --workspace --all-targets --all-features --locked -- -D warnings

features: tools ## does it build without any broker, is ring the only crypto provider, and does nothing shipped need the laboratory?
	cargo clippy --workspace --all-targets --no-default-features --locked -- -D warnings
	@# What a user builds, without what the tests turn on.
	cargo clippy --package dwell-engine --lib --locked -- -D warnings
	cargo clippy --package dwell --bin dwell --locked -- -D warnings
	@# OpenSSL comes with librdkafka alone, which knows nothing else; deny.toml says so.
	@for crate in aws-lc-rs; do \
		if cargo tree --workspace --all-features --target all --locked -i $$crate 2>/dev/null; then echo "error: $$crate is in the tree" >&2; exit 1; fi; \
	done
	@# Nothing shipped stands on what is not.
	@for crate in dwell-testkit dwell-lab; do \
		if cargo tree --package dwell --edges normal,build --all-features --target all --locked --prefix none | grep "^$$crate "; then \
			echo "error: dwell depends on $$crate" >&2; exit 1; fi; \
	done

docs: tools ## do the docs build, with every link?
	RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps --all-features --locked

links: tools ## do all links in the docs lead somewhere, and are the generated pages current?
	cargo test --locked --quiet --package dwell --test docs

docs-site: ## build the docs as one searchable site: target/site/index.html
	@scripts/docs-site.sh

deny: ## licences, sources and banned crates (deny.toml)
	scripts/deny.sh

tools: ## find or install what compiling needs besides Rust, a C compiler and make
	@scripts/tools.sh

servers: ## find or install redis-server and nats-server
	@scripts/servers.sh

kafka: ## find or install Apache Kafka, for the tests: needs Java
	@scripts/kafka.sh

rabbitmq: ## find or install RabbitMQ, for the tests
	@scripts/rabbitmq.sh

newer: ## install the servers of the next Debian and a newer Kafka in a folder of their own: needs root
	@scripts/newer.sh

nginx: ## find or install nginx, for the tests of HTTP targets
	@scripts/nginx.sh

promtool: ## find or install promtool, which judges metrics and alert rules in the tests
	@scripts/promtool.sh

clients: ## install what the tests run in Python and Node: clients of the brokers, receivers of webhooks, a validator and a fuzzer for openapi.json
	@scripts/clients.sh

helm: ## find or build Helm, which checks the chart: needs Go where there is none
	@scripts/helm.sh

# Not a part of `test`: nothing of Dwell itself is run.
chart: helm ## lint and render the Helm chart with each set of its values, and the Kustomize overlays; no cluster
	@scripts/chart.sh

clients-test: ## test the files in clients/ for Python, Node and Go, each by its own tools
	@scripts/clients-test.sh

openapi: tools ## write docs/reference/openapi.json anew
	DWELL_WRITE_OPENAPI=1 cargo test --locked --lib openapi

reference: openapi ## write every generated page of docs/reference anew
	DWELL_WRITE_DOCS=1 cargo test --locked --package dwell --test docs current

browser: ## find or install Chromium and its driver, for the tests of the dashboard
	@scripts/browser.sh

clean-servers: ## forget the servers that were found or installed
	rm -rf .servers
