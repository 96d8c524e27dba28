#!/usr/bin/env bash
# Installs the servers of Debian 13 in a folder of their own, and leaves programs that start them at
# .servers/newer/bin: redis-server, redis-server-waitaof, nats-server, rabbitmq-server and
# rabbitmqctl. Needs root, and Debian or Ubuntu. Starts none. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

suite=trixie
packages=rabbitmq-server,nats-server,redis-server
root=$PWD/.servers/newer/$suite
bin=$PWD/.servers/newer/bin

[ "$(id -u)" = 0 ] || fail "the servers of Debian's $suite run in a folder of their own, by chroot: run this as root"
command -v debootstrap >/dev/null || apt_install debootstrap || fail "install debootstrap: it brings the servers of Debian's $suite"

# Whole or not there: a cut installation begins anew.
if [ ! -e "$root/.whole" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    say "installing the servers of Debian's $suite, which takes a minute"
    debootstrap --variant=minbase --include=$packages $suite "$root" >"$root.log" 2>&1 ||
        fail "debootstrap did not bring Debian's $suite: $(tail -n 1 "$root.log") ($root.log has the rest)"
    printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
    touch "$root/.whole"
fi

# starter NAME PROGRAM: starts a program of that folder. The mounts are its own and go with it;
# `exec` keeps the process id.
starter() {
    mkdir -p "$bin"
    cat >"$bin/$1.$$" <<EOF
#!/bin/sh
export ROOT='$root' SHARED="\${TMPDIR:-/tmp}"
exec unshare --mount -- /bin/sh -ec '
    mkdir -p "\$ROOT\$SHARED"
    mount --rbind /proc "\$ROOT/proc"
    mount --rbind /dev "\$ROOT/dev"
    mount --rbind "\$SHARED" "\$ROOT\$SHARED"
    PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot "\$ROOT" /bin/sh -c "
        cd \"\$PWD\" 2>/dev/null || cd /
        exec \"\\\$@\"" sh "\$@"' sh $2 "\$@"
EOF
    chmod 755 "$bin/$1.$$"
    mv -f "$bin/$1.$$" "$bin/$1"
}

starter redis-server /usr/bin/redis-server
starter redis-server-waitaof /usr/bin/redis-server
starter nats-server /usr/sbin/nats-server
starter rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server
starter rabbitmqctl /usr/lib/rabbitmq/bin/rabbitmqctl
say "$("$bin/redis-server" --version | cut -d' ' -f1-3), $("$bin/nats-server" --version), rabbitmq $(chroot "$root" dpkg-query -W -f '${Version}' rabbitmq-server)"
