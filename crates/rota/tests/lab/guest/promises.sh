# SPDX-License-Identifier: GPL-2.0-only
# Everybody on one CPU wants all of it.
. /lab/lib.sh
if [ -e /lab/outlives ]; then mount -t bpf bpf /sys/fs/bpf; fi
tenants steady quick capped spare
up
window 2 6
for tenant in steady quick capped spare; do probe $tenant; done
probe . system
until_second $END -100
status during
wait $PROBES
status after

busy quick
kill -9 $UP
wait $UP || true
if [ -e /lab/outlives ]; then
    echo "killed, and taken over; the newest kernel has outlive.sh"
    state_is enabled || fail "the scheduler has ended with the daemon"
    up again
    logged "scheduler taken over" || fail "the scheduler was not taken over"
    goes_on quick
    rota down
else
    echo "killed, without a BPF file system"
fi
await state_is disabled
goes_on quick
