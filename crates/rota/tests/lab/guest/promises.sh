# SPDX-License-Identifier: GPL-2.0-only
# Everybody on one CPU wants all of it.
. /lab/lib.sh
tenants steady quick capped spare
up
window 2 6
for tenant in steady quick capped spare; do probe $tenant; done
probe . system
until_second $END -100
status during
wait $PROBES
status after

# Killed, without a BPF file system, on each kernel; other ends are in outlive.sh.
busy quick
kill -9 $UP
wait $UP || true
await state_is disabled
goes_on quick
