#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-only
# What an operator does with the unit, in a Debian that has just booted. Ends with "PASSED".
set -eu
export PATH=/usr/sbin:/usr/bin:/sbin:/bin

say() { echo "=== $*"; }

fail() {
    echo "FAILED: $*"
    journalctl --no-pager --output cat --unit rota | tail -60
    exit 1
}

# await COMMAND...: until it succeeds.
await() {
    for _ in $(seq 300); do
        if "$@"; then return; fi
        sleep 0.1
    done
    fail "waited in vain: $*"
}

# logged TEXT [COUNT]: whether the unit's journal has it, in COUNT lines at least.
logged() { [ "$(journalctl --output cat --unit rota | grep -c -e "$1")" -ge "${2:-1}" ]; }

is() { [ "$(systemctl show --value --property "$1" rota)" = "$2" ] || fail "$1 of the unit is not $2"; }

is_scheduled() { [ "$(cat /sys/kernel/sched_ext/state)" = "$1" ]; }

# never_ends: looks from now on whether the scheduler has ended, until `went_on` is asked.
never_ends() {
    rm -f /run/ended
    (while is_scheduled enabled; do sleep 0.02; done; touch /run/ended) &
    watch=$!
}

went_on() {
    [ ! -e /run/ended ] || fail "the scheduler has ended"
    kill $watch
}

promised() { rota status | grep -q "^web  *reserved  *served  *$1 "; }


say "installing"
dpkg --install /root/rota.deb >/run/install 2>&1 || fail "$(cat /run/install)"
systemctl is-enabled --quiet rota && fail "it is enabled, which nobody asked for"
cat >/etc/rota/rota.toml <<'T'
[[tenant]]
name = "web"
class = "reserved"
share = 0.30
latency = "20ms"
match = { unit = "web.service" }

[[tenant]]
name = "hog"
class = "shared"
match = { unit = "hog.service" }
T

say "starting, as a service of systemd $(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p')"
systemctl start web hog rota
is_scheduled enabled || fail "no scheduler"
promised 0.300 || fail "$(rota status)"

exposure=$(systemd-analyze security --no-pager rota.service)
exposure=$(sed -n 's/.*Overall exposure level.*: \([0-9.]*\) .*/\1/p' <<<"$exposure")
say "systemd-analyze security: $exposure"
[ "${exposure/./}" -lt 30 ] || fail "the exposure is $exposure"

say "an edit"
never_ends
sed -i 's/0.30/0.40/' /etc/rota/rota.toml
systemctl reload rota
await promised 0.400

say "a broken edit"
cp /etc/rota/rota.toml /run/good
echo "x = 1" >>/etc/rota/rota.toml
systemctl reload rota
await logged "the edited configuration is not used"
is ActiveState active
cp /run/good /etc/rota/rota.toml
systemctl reload rota

say "a restart"
systemctl restart rota
await promised 0.400
logged "scheduler taken over" || fail "the scheduler was not taken over"

say "kill -9"
kill -9 "$(systemctl show --value --property MainPID rota)"
await logged "scheduler taken over" 2
await promised 0.400
is NRestarts 1
went_on

say "somebody else asks"
su --shell /bin/sh nobody --command 'rota status' 2>/run/said && fail "nobody is answered"
grep -qi "permission\|group" /run/said || fail "$(cat /run/said)"

say "a stop"
systemctl stop rota
is_scheduled disabled || fail "the scheduler goes on"
[ -z "$(find /sys/fs/bpf -type f)" ] || fail "left behind: $(find /sys/fs/bpf)"

say "a start with a broken configuration"
echo "x = 1" >>/etc/rota/rota.toml
systemctl start rota && fail "it has started"
is ExecMainStatus 2
is NRestarts 0
echo PASSED
