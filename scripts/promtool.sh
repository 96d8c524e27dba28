#!/usr/bin/env bash
# Finds or installs the promtool that the tests judge metrics and alert rules with, and leaves it at
# .servers/bin/promtool. DWELL_PROMTOOL names another. No Prometheus is installed: the program is
# taken out of Debian's package. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minimum=2.40
bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle PATH: takes the program from there, if it is a promtool that is new enough.
settle() {
    local version
    version=$(version_of "$1" promtool) || return 1
    at_least "$version" "$minimum" || return 1
    [ "$1" = "$bin/promtool" ] || ln -sf "$1" "$bin/promtool"
    say "promtool $version: $1"
}

# Out of Debian's package: its service would start a Prometheus that nobody asked for.
take_from_debian() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    # apt drops its rights to download, and must be able to write here.
    chmod 777 "$folder"
    cd "$folder"
    say "taking promtool out of the package prometheus"
    quietly apt-get download prometheus && dpkg-deb --extract prometheus_*.deb . && install -m 755 usr/bin/promtool "$bin/promtool"
)

if [ -n "${DWELL_PROMTOOL:-}" ] && [ "$DWELL_PROMTOOL" != "$bin/promtool" ]; then
    settle "$DWELL_PROMTOOL" || fail "DWELL_PROMTOOL=$DWELL_PROMTOOL is no promtool of version $minimum or later"
    exit
fi
[ -x "$bin/promtool" ] && settle "$bin/promtool" && exit
found=$(command -v promtool || true)
[ -n "$found" ] && settle "$found" && exit
apt_offers prometheus $minimum && take_from_debian && settle "$bin/promtool" && exit
fail "found no promtool of version $minimum or later, and could not install one. Any of these helps:
  - on Debian or Ubuntu, run this once as root, with a network;
  - install Prometheus by the means of your system, or set DWELL_PROMTOOL to the path of its promtool."
