#!/usr/bin/env bash
# Installs the servers of the next Debian in a folder of their own, and leaves programs that start them
# at .servers/newer/bin: valkey-server, redis-server, nats-server, rabbitmq-server and rabbitmqctl; and
# a newer Kafka at .servers/newer/kafka. Needs root, and Debian or Ubuntu. Starts none. Run again, it
# only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

suite=forky
packages=rabbitmq-server,nats-server,redis-server,valkey-server
kafka=4.4.0
root=$PWD/.servers/newer/$suite
bin=$PWD/.servers/newer/bin

[ "$(id -u)" = 0 ] || fail "the servers of Debian's $suite run in a folder of their own, by chroot: run this as root"
command -v debootstrap >/dev/null || apt_install debootstrap || fail "install debootstrap: it brings the servers of Debian's $suite"

# Whole or not there: a cut installation begins anew.
if [ ! -e "$root/.whole" ]; then
    rm -rf "$root"
    mkdir -p "$root"
    say "installing the servers of Debian's $suite, which takes a minute"
    # A debootstrap that does not know the suite installs it as it installs unstable.
    steps=/usr/share/debootstrap/scripts/$suite
    [ -e "$steps" ] || steps=/usr/share/debootstrap/scripts/sid
    debootstrap --variant=minbase --include=$packages $suite "$root" http://deb.debian.org/debian "$steps" >"$root.log" 2>&1 ||
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

starter valkey-server /usr/bin/valkey-server
starter redis-server /usr/bin/redis-server
starter nats-server /usr/sbin/nats-server
starter rabbitmq-server /usr/lib/rabbitmq/bin/rabbitmq-server
starter rabbitmqctl /usr/lib/rabbitmq/bin/rabbitmqctl

jars=$PWD/.servers/newer/kafka
if [ ! -e "$jars/kafka-tools-$kafka.jar" ]; then
    command -v mvn >/dev/null || apt_install maven || fail "install Maven: it brings Kafka $kafka"
    say "taking Apache Kafka $kafka from Maven Central"
    rm -rf "$jars"
    folder=$(mktemp -d "$jars.XXXXXX")
    trap 'rm -rf "$folder"' EXIT
    quietly mvn --batch-mode --quiet --strict-checksums --file scripts/kafka/pom.xml -Dkafka.version=$kafka --activate-profiles tools \
        dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$folder/libs" || fail "Maven could not fetch Kafka $kafka"
    mv -T "$folder/libs" "$jars"
fi

version() { chroot "$root" dpkg-query -W -f '${Version}' "$1"; }
say "valkey $(version valkey-server), redis $(version redis-server), nats $(version nats-server), rabbitmq $(version rabbitmq-server), kafka $kafka"
