#!/usr/bin/env bash
# Finds or installs the Helm that checks the chart, and leaves it at .servers/bin/helm. DWELL_HELM
# names another. Where there is none it is built by Go, from its sources. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# The first with `fromToml`, and the one that is built.
minimum=3.17
package=helm.sh/helm/v4/cmd/helm@v4.3.1
bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle PATH: takes the program from there, if it is a Helm that is new enough.
settle() {
    local version
    # Helm has no --version. One that Go built calls itself by its minor version.
    version=$("$1" version --template '{{.Version}}' 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1) || return 1
    at_least "$version" "$minimum" || return 1
    [ "$1" = "$bin/helm" ] || ln -sf "$1" "$bin/helm"
    say "helm $version: $1"
}

build() {
    command -v go >/dev/null || return 1
    say "building $package, some minutes"
    CGO_ENABLED=0 GOBIN=$bin GOFLAGS='-buildvcs=false -trimpath' quietly go install -ldflags '-s -w' "$package"
}

if [ -n "${DWELL_HELM:-}" ] && [ "$DWELL_HELM" != "$bin/helm" ]; then
    settle "$DWELL_HELM" || fail "DWELL_HELM=$DWELL_HELM is no Helm of version $minimum or later"
    exit
fi
[ -x "$bin/helm" ] && settle "$bin/helm" && exit
found=$(command -v helm || true)
[ -n "$found" ] && settle "$found" && exit
build && settle "$bin/helm" && exit
fail "found no Helm of version $minimum or later, and could not build one. Any of these helps:
  - install Go 1.26 or later, and run this once with a network;
  - install Helm by the means of your system, or set DWELL_HELM to its path."
