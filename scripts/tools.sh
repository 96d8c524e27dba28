#!/usr/bin/env bash
# Finds or installs what compiling Kafka's client library needs besides Rust, a C compiler and make:
# a C++ compiler (its build always makes its C++ half, which is not used), and perl with its
# modules, for OpenSSL. Run again, it only looks.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

has_cxx() { command -v g++ >/dev/null || command -v clang++ >/dev/null || command -v c++ >/dev/null; }
# Debian's perl-base is a perl without these.
has_perl() { perl -MFindBin -MIPC::Cmd -MFile::Compare -MTime::Piece -e 1 2>/dev/null; }

has_cxx || { apt_install g++ && has_cxx; } || missing="a C++ compiler"
has_perl || { apt_install perl && has_perl; } || missing="${missing:+$missing and }perl with its modules"
[ -z "${missing:-}" ] || fail "compiling Kafka's client library needs $missing, which could not be installed. Any of these helps:
  - on Debian or Ubuntu, as root: apt-get install build-essential;
  - install it by the means of your system;
  - build without Kafka: cargo build --no-default-features --features nats"
