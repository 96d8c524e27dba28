# The functions that the scripts share. Sourced, by bash.

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $*"
    exit 1
}

# apt_possible: may this run install Debian packages? Refreshes their lists, once a run.
apt_possible() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    [ -z "${apt_is_fresh:-}" ] || return 0
    quietly apt-get update || say "warning: apt-get update failed, going on with the lists that are there"
    apt_is_fresh=yes
}

# apt_install PACKAGE…: installs Debian packages.
apt_install() {
    apt_possible || return 1
    say "installing $* with apt-get"
    # RUNLEVEL: packages of servers shall not start a service of their own.
    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends "$@"
}

# apt_offers PACKAGE MINIMUM: does Debian have it in that version or later?
apt_offers() {
    apt_possible || return 1
    at_least "$(apt-cache policy "$1" | sed -n 's/^ *Candidate: \([0-9]*:\)\{0,1\}\([0-9.]*\).*/\2/p')" "$2"
}

# quietly COMMAND…: its output only where it fails.
quietly() {
    local said
    said=$("$@" 2>&1) || { say "$said"; return 1; }
}

# version_of PROGRAM WORD: the first thing in `PROGRAM --version` that looks like 1.2 or 1.2.3;
# nothing where it does not run, or does not call itself by that word (a pattern of grep -E).
version_of() {
    local said
    said=$("$1" --version 2>/dev/null) || return 0
    grep -qiE "$2" <<<"$said" || return 0
    grep -oE '[0-9]+\.[0-9]+(\.[0-9]+)?' <<<"$said" | head -n 1
}

# at_least VERSION MINIMUM
at_least() { [ -n "$1" ] && [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n 1)" = "$2" ]; }

# python_packages FOLDER WHAT LIST…: installs what the lists pin by version and hash into the
# folder. Run again, it only looks.
python_packages() {
    local folder=$1 what=$2 stamp
    shift 2
    if ! python3 -m pip --version >/dev/null 2>&1; then
        say "no Python with pip: asking apt for python3-pip"
        apt_install python3-pip || fail "found no Python 3 with pip, which the tests need for $what: install it by the means of your system"
    fi
    stamp=$(cat "$@" && python3 --version)
    if [ "$(cat "$folder/stamp" 2>/dev/null)" != "$stamp" ]; then
        rm -rf "$folder" "$folder.$$"
        mkdir -p "$(dirname "$folder")"
        PIP_ROOT_USER_ACTION=ignore python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
            --require-hashes --target "$folder.$$" "${@/#/--requirement=}" >&2 || fail "pip could not install what these name: $*"
        printf '%s\n' "$stamp" >"$folder.$$/stamp"
        mv "$folder.$$" "$folder"
    fi
    say "$what: $folder"
}

# node_packages FOLDER WHAT PINS: installs what package-lock.json in the folder PINS pins by version
# and hash into FOLDER/node_modules. Run again, it only looks.
node_packages() {
    local folder=$1 what=$2 pins=$3
    if ! npm --version >/dev/null 2>&1; then
        say "no Node with npm: asking apt for npm"
        apt_install npm || fail "found no Node with npm, which the tests need for $what: install it by the means of your system"
    fi
    if ! cmp -s "$pins/package-lock.json" "$folder/node_modules/stamp"; then
        rm -rf "$folder/node_modules" "$folder/npm.$$"
        mkdir -p "$folder/npm.$$"
        cp "$pins/package.json" "$pins/package-lock.json" "$folder/npm.$$"
        quietly npm ci --prefix "$folder/npm.$$" --ignore-scripts --no-audit --no-fund || fail "npm could not install what $pins/package-lock.json names"
        cp "$pins/package-lock.json" "$folder/npm.$$/node_modules/stamp"
        mv "$folder/npm.$$/node_modules" "$folder/node_modules"
        rm -rf "$folder/npm.$$"
    fi
    say "$what: $folder/node_modules"
}
