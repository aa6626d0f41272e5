#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Boots a clean Debian of one CPU, emulated, with systemd, and has the package's unit do what an operator has it do.
#
# scripts/try-systemd.sh ROOT VMLINUX: ROOT is the clean system, with the package as /root/rota.deb; it is changed.
# Time counts instructions in it, so that nothing there is late on a slow machine.
set -euo pipefail
cd "$(dirname "$0")"

if [ $# != 2 ] || ! [ -f "$1/root/rota.deb" ] || ! [ -f "$2" ]; then
    echo "usage: scripts/try-systemd.sh ROOT VMLINUX" >&2
    exit 2
fi
readonly ROOT=$1 VMLINUX=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install -m 755 systemd/try.sh "$ROOT/root/try.sh"
install -m 644 systemd/*.service "$ROOT/etc/systemd/system/"
wants=$ROOT/etc/systemd/system/multi-user.target.wants
mkdir -p "$wants"
ln -sf ../try.service "$wants/try.service"
ln -sf lib/systemd/systemd "$ROOT/init"
(
    cd "$ROOT"
    find . \( -path ./usr/share/doc -o -path ./usr/share/locale -o -path ./usr/share/man -o -path ./var/cache/apt \
        -o -path ./var/lib/apt/lists \) -prune -o -print | busybox cpio -o -H newc
) 2>/dev/null | zstd --quiet -1 >"$work/image"

# Processors' features are those of the lab's guests, for its reasons.
qemu-system-x86_64 -no-reboot -nodefaults -no-user-config -accel tcg,thread=single -icount shift=1,sleep=off -M q35 \
    -cpu max,-monitor,-rdrand,-rdseed,-erms,-fsrm,-fzrm,-fsrs,-fsrc -m 2048M -display none -kernel "$VMLINUX" \
    -initrd "$work/image" -serial "file:$work/console" \
    -append "console=ttyS0 quiet panic=-1 rdinit=/init mitigations=off cryptomgr.notests=1 systemd.show_status=0" &
qemu=$!
trap 'kill $qemu 2>/dev/null || true; rm -rf "$work"' EXIT
for second in $(seq 900); do
    kill -0 $qemu 2>/dev/null || break
    sleep 1
done
if ! grep -q '^PASSED' "$work/console"; then
    cat "$work/console" >&2
    echo "try-systemd: failed, or not ended after $second s" >&2
    exit 1
fi
grep '^===' "$work/console"
