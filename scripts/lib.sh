# What the scripts share. Sourced, by bash.

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}

# apt_install PACKAGE…: installs Debian packages, only as root. Refreshes the package lists once a run.
apt_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    if [ -z "${apt_is_fresh:-}" ]; then
        DEBIAN_FRONTEND=noninteractive apt-get update -qq >&2 || say "warning: apt-get update failed, going on with the lists that are there"
        apt_is_fresh=yes
    fi
    # RUNLEVEL: packages of servers shall not start a service of their own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >&2
}

# version_of PROGRAM: the first thing in `PROGRAM --version` that looks like 1.2 or 1.2.3; nothing where it does not run.
version_of() { "$1" --version 2>/dev/null | grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' | head -n 1 || true; }

# at_least VERSION MINIMUM
at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }
