#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs a package of rota in a clean Debian of this machine's release, as a new user would: then uses it, edits its
# configuration, installs it once more, removes it and purges it. As root; nothing of it is left on this machine.
#
# scripts/try-deb.sh PACKAGE.deb [VMLINUX]: with a kernel, that system is booted with systemd then.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# = 0 ] || [ $# -gt 2 ] || ! [ -f "$1" ]; then
    echo "usage: scripts/try-deb.sh PACKAGE.deb [VMLINUX]" >&2
    exit 2
fi
# shellcheck source=/dev/null
. /etc/os-release
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT
readonly ROOT=$work/root
mkdir "$ROOT"

fail() {
    echo "try-deb: $*" >&2
    exit 1
}

# Runs a command in the clean system, with processes of its own. What it says is shown only if it fails.
inside() {
    unshare --mount --pid --fork --root="$ROOT" --mount-proc --wd=/ \
        env DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        sh -c 'mount -t sysfs -o ro sysfs /sys && exec "$@"' sh "$@" >"$work/log" 2>&1 && return
    cat "$work/log" >&2
    fail "failed in the clean system: $*"
}

# has PATH: in the clean system. A dangling link counts, too.
has() { [ -e "$ROOT$1" ] || [ -L "$ROOT$1" ]; }

# What it has, but for caches and logs.
files() { (cd "$ROOT" && find etc usr var ! -path 'var/cache/*' ! -path 'var/log/*' | sort); }

install() {
    echo "try-deb: $1"
    inside apt-get install --yes --no-install-recommends "${@:2}" /root/rota.deb
    inside rota --version
}

echo "try-deb: making a clean $VERSION_CODENAME"
mmdebstrap --quiet --mode=root --variant=minbase "$VERSION_CODENAME" "$ROOT" "$(scripts/mirror.sh)"
cp --dereference /etc/resolv.conf "$ROOT/etc/resolv.conf"
cp "$1" "$ROOT/root/rota.deb"
inside apt-get update
files >"$work/before"

install "installing"
inside rota plan --config /etc/rota/rota.toml
inside sh -c 'rota doctor; [ $? -le 1 ]' # a finding is no failure: there is no sched_ext here
for path in /usr/share/man/man1/rota.1.gz /usr/share/bash-completion/completions/rota /usr/share/doc/rota/copyright; do
    has $path || fail "$path is not there"
done
inside bash -n /usr/share/bash-completion/completions/rota
for program in $(sed -n 's/^Exec[A-Za-z]*=\([^ ]*\).*/\1/p' "$ROOT/usr/lib/systemd/system/rota.service"); do
    has "$program" || fail "the unit calls $program, which a minimal system lacks"
done
if (cd "$ROOT" && find etc/systemd -name 'rota.*' | grep .); then
    fail "the daemon is to start by itself, which nobody asked for"
fi

# A user's edit stays, whatever is installed over it.
echo "# ours" >>"$ROOT/etc/rota/rota.toml"
install "installing again" --reinstall
grep --quiet '^# ours$' "$ROOT/etc/rota/rota.toml" || fail "an edit of rota.toml is gone after an upgrade"

echo "try-deb: removing"
inside apt-get remove --yes rota
has /usr/bin/rota && fail "the program is still there"
has /etc/rota/rota.toml || fail "the configuration went with the program"

echo "try-deb: purging"
inside apt-get purge --yes rota
left=$(files | comm -13 "$work/before" - | grep --ignore-case rota) || true
[ -z "$left" ] || fail "left behind: $left"
echo "try-deb: $(basename "$1") installs, runs, is upgraded, removed and purged on $VERSION_CODENAME"

if [ $# = 2 ]; then
    echo "try-deb: booting with systemd"
    inside apt-get install --yes --no-install-recommends systemd systemd-sysv dbus
    scripts/try-systemd.sh "$ROOT" "$2"
fi
