#!/usr/bin/env bash
# Finds or installs the RabbitMQ that the tests start for themselves, and leaves its programs at
# .servers/bin/rabbitmq-server and rabbitmqctl.
# DWELL_RABBITMQ_SERVER names another rabbitmq-server. Starts none. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

minimum=3.10
bin=$PWD/.servers/bin
mkdir -p "$bin"

# settle FOLDER: takes RabbitMQ's programs from there, if they run and are new enough. No links: the programs
# look for their parts beside themselves. And `exec`: the starter of a program ends it by its process id.
settle() {
    local version program
    [ -x "$1/rabbitmq-server" ] && [ -x "$1/rabbitmqctl" ] || return 1
    version=$("$1/rabbitmqctl" version 2>/dev/null | grep -oE '^[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1) || return 1
    at_least "$version" "$minimum" || return 1
    for program in rabbitmq-server rabbitmqctl; do
        printf '#!/bin/sh\nexec "%s" "$@"\n' "$1/$program" >"$bin/$program.$$"
        chmod 755 "$bin/$program.$$"
        mv -f "$bin/$program.$$" "$bin/$program"
    done
    say "rabbitmq-server $version: $1"
}

# where PROGRAM: the folder of RabbitMQ's own programs, where this one is found.
where() {
    local path
    path=$(command -v "$1" 2>/dev/null) && dirname "$(readlink -f "$path")"
}

# Installs it, and lets no service start: the tests start their own.
install() {
    local policy=/usr/sbin/policy-rc.d result=0
    apt_offers rabbitmq-server "$minimum" || return 1
    if [ ! -e $policy ]; then
        printf '#!/bin/sh\nexit 101\n' >$policy
        chmod 755 $policy
        trap "rm -f $policy" EXIT
    fi
    apt_install rabbitmq-server || result=1
    return $result
}

if [ -n "${DWELL_RABBITMQ_SERVER:-}" ] && [ "$DWELL_RABBITMQ_SERVER" != "$bin/rabbitmq-server" ]; then
    settle "$(where "$DWELL_RABBITMQ_SERVER")" ||
        fail "DWELL_RABBITMQ_SERVER=$DWELL_RABBITMQ_SERVER is no rabbitmq-server of version $minimum or later, with rabbitmqctl beside it"
    exit
fi
# Debian's programs in /usr/sbin change to a user of their own; these do not.
debian=/usr/lib/rabbitmq/bin
settle $debian || settle "$(where rabbitmq-server)" || { install && settle $debian; } ||
    fail "the tests need RabbitMQ $minimum or later, and found none and could not install one. Any of these helps:
  - on Debian or Ubuntu, run this once as root, with a network: it installs what it needs;
  - install RabbitMQ by the means of your system, or set DWELL_RABBITMQ_SERVER to the path of rabbitmq-server."
