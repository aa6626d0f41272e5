# SPDX-License-Identifier: GPL-2.0-only
# A fork bomb in one tenant, then thousands of busy threads; another tenant and the system want their part all the time.
. /lab/lib.sh

# emptied CGROUP: kills what is there and waits until it is gone.
emptied() {
    echo 1 >$CGROUPS/$1/cgroup.kill
    await grep -q "populated 0" $CGROUPS/$1/cgroup.events
}

tenants web crowd
echo 1500 >$CGROUPS/crowd/pids.max
up
window 1 2
probe web bomb_probe
(inside crowd sh -c 'bomb() { bomb | bomb & }; bomb') 2>/dev/null &
until_second $END
status bomb
cat $CGROUPS/crowd/pids.peak >/results/bomb.peak
wait $PROBES
emptied crowd
echo "the bomb is gone"

# Threads sleep until all are there, and in the tenant. Beside others that are busy it would take them minutes to come.
read -r threads seconds </lab/crowd
echo max >$CGROUPS/crowd/pids.max
echo $((threads + 10000)) >/proc/sys/kernel/threads-max
window $((6 + threads / 400)) $seconds
probe web crowd_probe
rota-crowd --threads $threads --start-ns ${START}000000000 --end-ns ${END}000000000 >/results/crowd.json &
crowd=$!
await grep -q "Threads:.$((threads + 1))$" /proc/$crowd/status
echo $crowd >$CGROUPS/crowd/cgroup.procs
until_second $START
status before
until_second $((END - 1))
status beside
wait $crowd $PROBES
sleep 0.3 # its last thread may be on its way out still
status after
state_is enabled || fail "the scheduler is gone"
stop
