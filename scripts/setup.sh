#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs what building, testing and the lab need, on Debian 12 or later, x86-64, as root.
#
# Does nothing, quickly, where all is there. Adds backports to apt from the mirror that the machine already uses, never
# upgrades what it need not, and starts no service. What apt says goes to .lab/setup.log.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly LOG=.lab/setup.log
readonly SOURCES=/etc/apt/sources.list.d/rota-lab.list
readonly PREFERENCES=/etc/apt/preferences.d/rota-lab
readonly POLICY=/usr/sbin/policy-rc.d
readonly OLDEST_RUST=1.88
# The first with the plugin interface that crates/rota-lab/src/resync.c uses.
readonly OLDEST_QEMU=9.2
readonly PACKAGES=(
    ca-certificates git make gcc libc6-dev pkg-config libelf-dev zlib1g-dev clang-19 clang-format-19 # to build
    busybox-static                                                              # to boot guests, beside QEMU
    redis-server redis-tools nginx memcached stress-ng xz-utils zstd            # to run in them
    mmdebstrap                                                                  # to install the package in
    prometheus                                                                  # to take the metrics, rules and alerts
)

say() { echo "setup: $*"; }

fail() {
    echo "setup: $*" >&2
    exit 1
}

# at_least VERSION WANTED
at_least() { [ -n "$1" ] && [ "$(printf '%s\n' "$1" "$2" | sort --version-sort | head -n 1)" = "$2" ]; }

rust_version() { cargo --version 2>/dev/null | cut -d ' ' -f 2 || true; }

has_rust() { at_least "$(rust_version)" $OLDEST_RUST && cargo fmt --version && cargo clippy --version; } &>>$LOG

qemu_version() { qemu-system-x86_64 --version 2>/dev/null | sed -n 's/.* version \([0-9.]*\).*/\1/p' || true; }

has_qemu() { at_least "$(qemu_version)" $OLDEST_QEMU; }

is_installed() { [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# A kernel that the lab has unpacked, or the lists from which it can choose one.
has_kernels() {
    local names='^linux-(image|binary)-(6\.1[6-9]|[7-9]\.).*-cloud-amd64$'
    compgen -G "${ROTA_LAB_DIR:-.lab}/kernels/*/vmlinux" >/dev/null ||
        apt-cache pkgnames linux- | grep --extended-regexp "$names" >/dev/null
}

# Runs apt-get without questions; on failure shows the end of what it said.
apt() {
    DEBIAN_FRONTEND=noninteractive apt-get --quiet --yes -o DPkg::Lock::Timeout=300 "$@" >>$LOG 2>&1 && return
    tail -n 15 $LOG >&2
    fail "apt-get $1 failed, see $LOG"
}

install() {
    [ $# = 0 ] || { say "installing $*" && apt install --no-install-recommends "$@"; }
}

# Makes the backports known to apt. Those of trixie have the kernels, and none of the rest is to come from there.
add_sources() {
    local suites=() uri wanted
    case $VERSION_CODENAME in
    bookworm) suites=(bookworm-backports trixie-backports) ;;
    trixie) suites=(trixie-backports) ;;
    *) return 0 ;; # later releases have all in their main archive
    esac
    uri=$(scripts/mirror.sh) || fail "the lab's kernels cannot be had"
    wanted=$(printf "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $uri %s main\n" "${suites[@]}")
    [ "$(cat $SOURCES 2>/dev/null)" = "$wanted" ] && return
    say "adding ${suites[*]} to apt"
    echo "$wanted" >$SOURCES
    printf 'Package: *\nPin: release n=trixie-backports\nPin-Priority: 1\n' >$PREFERENCES
}

install_qemu() {
    if [ "$VERSION_CODENAME" = bookworm ]; then
        # Bookworm's own, 7.2, panics guests when a scheduler is loaded.
        install --target-release=bookworm-backports qemu-system-x86
    else
        install qemu-system-x86
    fi
    has_qemu || fail "QEMU $OLDEST_QEMU or later is needed, here is $(qemu_version)"
}

install_rust() {
    case $VERSION_CODENAME in
    bookworm) install rustc-web cargo-web rustfmt-web rust-web-clippy ;;
    trixie) install --target-release=trixie-backports rustc cargo rustfmt rust-clippy ;;
    *) install rustc cargo rustfmt rust-clippy ;;
    esac
    hash -r
    has_rust || fail "cargo $OLDEST_RUST or later with fmt and clippy is needed, here is '$(rust_version)':" \
        "add $VERSION_CODENAME-security to apt's sources, which has a newer one," \
        "or, if it is rustup's, run 'rustup update stable && rustup component add rustfmt clippy'"
}

# Installing a server must not start it: the machine's owner did not ask for one.
forbid_services() {
    [ -e $POLICY ] && return
    printf '#!/bin/sh\nexit 101\n' >$POLICY
    chmod 755 $POLICY
    trap 'rm -f $POLICY' EXIT
}

main() {
    local missing=() package
    mkdir -p .lab
    [ "$(uname -m)" = x86_64 ] || fail "the lab boots x86-64 kernels, and this machine is $(uname -m)"
    command -v apt-get >/dev/null || fail "this is not Debian; needed are Rust $OLDEST_RUST and: ${PACKAGES[*]}"
    # shellcheck source=/dev/null
    . /etc/os-release
    : "${VERSION_CODENAME:=unknown}"
    for package in "${PACKAGES[@]}"; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} = 0 ] && has_qemu && has_rust && has_kernels && return

    [ "$(id -u)" = 0 ] || fail "needs to install packages: run it as root"
    : >$LOG
    add_sources
    say "reading the package lists"
    apt update
    forbid_services
    install "${missing[@]}"
    has_qemu || install_qemu # after the others: its libraries come from backports
    has_rust || install_rust
    has_kernels || fail "apt knows no kernel with sched_ext: is $(scripts/mirror.sh) a full mirror?"
    say "done"
}

main "$@"
