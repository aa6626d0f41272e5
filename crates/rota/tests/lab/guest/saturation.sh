# SPDX-License-Identifier: GPL-2.0-only
# Two CPUs that are never idle for half as long again as the watchdog waits, without housekeeping CPUs.
. /lab/lib.sh
TENANTS="web db batch spare"

# ran WHEN: the CPU time of each busy process so far, in ns.
ran() {
    for process in $PROCESSES; do
        read -r time rest </proc/$process/schedstat
        echo $time
    done >/results/$1
}

tenants $TENANTS
up
PROCESSES=
for tenant in $TENANTS; do
    busy $tenant
    PROCESSES="$PROCESSES $BUSY"
    busy $tenant
    PROCESSES="$PROCESSES $BUSY"
done
window 2 34
until_second $START
ran before
# A command of the system: it starts, runs and ends, again and again.
read -r now rest </proc/uptime
while [ ${now%.*} -lt $END ]; do
    answered status || fail "no answer"
    state_is enabled || fail "the scheduler is gone"
    sleep 1
    read -r now rest </proc/uptime
done
ran after
rota status >/results/status.log
dmesg >/results/dmesg.log
stop
