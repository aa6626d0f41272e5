# SPDX-License-Identifier: GPL-2.0-only
# Two CPUs that are never idle for two minutes, far longer than the watchdog waits, without housekeeping CPUs.
. /lab/lib.sh
tenants web db batch spare
up
for tenant in web web db db batch batch spare spare; do busy $tenant; done
window 1 120
until_second $START
before=$(used spare)
# A command of the system: it starts, runs and ends, again and again.
rounds=0
read -r now rest </proc/uptime
while [ ${now%.*} -lt $END ]; do
    rota status --json >/results/status.json
    rounds=$((rounds + 1))
    state_is enabled || fail "the scheduler is gone"
    sleep 1
    read -r now rest </proc/uptime
done
echo $rounds >/results/rounds
echo $(($(used spare) - before)) >/results/spare
dmesg >/results/dmesg
stop
