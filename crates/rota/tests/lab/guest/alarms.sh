# SPDX-License-Identifier: GPL-2.0-only
# A real-time task runs for an instant every few hundred microseconds, also when slots end. Its start takes longer.
. /lab/lib.sh
tenants t0 t1 t2 t3
up
for tenant in t0 t1 t2 t3; do busy $tenant; done
stress-ng --quiet --cyclic 1 --cyclic-policy fifo --cyclic-prio 50 --cyclic-sleep 300000 --timeout 6 &
ALARMS=$!
sleep 1
status before
sleep 3
status after
wait $ALARMS
stop
