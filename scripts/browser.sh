#!/usr/bin/env bash
# Finds or installs what the tests of the dashboard need: Chromium, left at .servers/bin/chromium,
# and what drives it from Python, in .servers/browser. DWELL_CHROMIUM names another Chromium or
# Chrome. Needs Python 3.10 with pip; as root on a Debian machine it installs all of it.
# Starts nothing. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

# The first that knows `light-dark()`, with which the pages are coloured.
minimum=123
bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle PROGRAM: takes this one, if it runs and is new enough. No link: Debian's is a script that
# looks around itself.
settle() {
    local path version
    path=$(command -v "$1" 2>/dev/null) || return 1
    version=$(version_of "$path" 'chrom(e|ium)')
    at_least "$version" "$minimum" || return 1
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$path" >"$bin/chromium.$$"
    chmod 755 "$bin/chromium.$$"
    mv -f "$bin/chromium.$$" "$bin/chromium"
    say "chromium $version: $path"
}

find_chromium() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        settle "$name" && return 0
    done
    return 1
}

if [ -n "${DWELL_CHROMIUM:-}" ] && [ "$DWELL_CHROMIUM" != "$bin/chromium" ]; then
    settle "$DWELL_CHROMIUM" || fail "DWELL_CHROMIUM=$DWELL_CHROMIUM is no Chromium of version $minimum or later"
else
    find_chromium || { apt_offers chromium "$minimum" && apt_install chromium && find_chromium; } ||
        fail "the tests of the dashboard need Chromium $minimum or later, and found none and could not install one. Any of these helps:
  - on Debian, run this once as root, with a network: it installs what it needs;
  - install Chromium or Chrome by the means of your system, or set DWELL_CHROMIUM to its path."
fi
python_packages .servers/browser "the driver of the browser" scripts/browser.txt
