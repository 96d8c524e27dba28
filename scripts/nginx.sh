#!/usr/bin/env bash
# Finds or installs the nginx that the tests of HTTP targets start for themselves, and leaves it at
# .servers/bin/nginx. DWELL_NGINX names another. No service is installed: the program is taken out of
# Debian's package. Starts none. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minimum=1.18
bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle PATH: takes the program from there, if it runs, is new enough, and knows TLS and HTTP/2.
settle() {
    local said version
    said=$("$1" -V 2>&1) || return 1
    version=$(grep -oE 'nginx/[0-9]+\.[0-9]+\.[0-9]+' <<<"$said" | head -n 1 | cut -d / -f 2)
    at_least "$version" "$minimum" && grep -q -- --with-http_ssl_module <<<"$said" && grep -q -- --with-http_v2_module <<<"$said" || return 1
    [ "$1" = "$bin/nginx" ] || ln -sf "$1" "$bin/nginx"
    say "nginx $version: $1"
}

# Out of Debian's package: its service would start an nginx on port 80 that nobody asked for.
take_from_debian() (
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    # apt drops its rights to download, and must be able to write here.
    chmod 777 "$folder"
    cd "$folder"
    say "taking nginx out of the package nginx"
    quietly apt-get download nginx && dpkg-deb --extract nginx_*.deb . && install -m 755 usr/sbin/nginx "$bin/nginx"
)

if [ -n "${DWELL_NGINX:-}" ] && [ "$DWELL_NGINX" != "$bin/nginx" ]; then
    settle "$DWELL_NGINX" || fail "DWELL_NGINX=$DWELL_NGINX is no nginx of version $minimum or later, with TLS and HTTP/2"
    exit
fi
[ -x "$bin/nginx" ] && settle "$bin/nginx" && exit
# Debian's is in a folder that only root has on PATH.
for found in "$(command -v nginx || true)" /usr/sbin/nginx; do
    [ -n "$found" ] && settle "$found" && exit
done
# The libraries are mostly there: Debian's name them so.
apt_offers nginx $minimum && take_from_debian &&
    { settle "$bin/nginx" || { apt_install libpcre2-8-0 libssl3 zlib1g && settle "$bin/nginx"; }; } && exit
fail "found no nginx of version $minimum or later with TLS and HTTP/2, and could not install one. Any of these helps:
  - on Debian or Ubuntu, run this once as root, with a network;
  - install nginx by the means of your system, or set DWELL_NGINX to its path."
