#!/usr/bin/env bash
# Builds the docs as one searchable site: target/site/index.html. Takes mdbook from PATH, else from
# crates.io into .servers.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

version=0.5.4
mdbook=$(command -v mdbook || true)
if [ -z "$mdbook" ]; then
    mdbook=$PWD/.servers/bin/mdbook
    # Without the parts that serve and watch.
    [ -x "$mdbook" ] || cargo install mdbook --version $version --locked --no-default-features --features search --root .servers
fi

# Pages link to files beside docs/ (settings, deployment): the site has the same tree, so that every
# link holds.
staged=target/site-source
rm -rf "$staged"
mkdir -p "$staged/src"
cp -R docs config deploy clients ./*.md LICENSE "$staged/src/"
sed 's#](\([^)]*\))#](docs/\1)#; s#](docs/\.\./#](#' docs/SUMMARY.md >"$staged/src/SUMMARY.md"
rm "$staged/src/docs/SUMMARY.md"
# Source files are no part of the site: their paths stand as text.
find "$staged/src" -name '*.md' -exec sed -i.old -E 's#\[([^]]+)\]\((\.\./)*((src|core|schedule|store|engine|connectors|testkit|lab|tests|fuzz|scripts)/[^)]*)\)#\1 (`\3`)#g' {} +
find "$staged/src" -name '*.md.old' -delete
cat >"$staged/book.toml" <<'TOML'
[book]
title = "Dwell"
description = "Delayed delivery for the Kafka, RabbitMQ or NATS JetStream that you already run"
language = "en"
[output.html]
default-theme = "light"
no-section-label = true
preferred-dark-theme = "navy"
[output.html.search]
use-boolean-and = true
TOML
"$mdbook" build "$staged" --dest-dir "$PWD/target/site"
say "site: target/site/index.html"
