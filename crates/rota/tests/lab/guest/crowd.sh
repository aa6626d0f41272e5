# SPDX-License-Identifier: GPL-2.0-only
# A fork bomb in one tenant, then a thousand busy processes; another tenant and the system want their part all the time.
. /lab/lib.sh

# emptied CGROUP: kills what is there and waits until it is gone.
emptied() {
    echo 1 >$CGROUPS/$1/cgroup.kill
    await grep -q "populated 0" $CGROUPS/$1/cgroup.events
}

# arrived COUNT: so many processes are in the crowd.
arrived() {
    [ $(wc -l <$CGROUPS/crowd/cgroup.procs) = $1 ]
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

# All are frozen as they come. Were they busy at once, each that moves in would wait beside them until the kernel lets
# it: 18 s for a thousand, all of it to be emulated. They share an open file: each would close its own as it thaws, one
# after the other, by a lock of the kernel.
exec 9>$CGROUPS/crowd/cgroup.procs
echo 1 >$CGROUPS/crowd/cgroup.freeze
for i in $(seq 1000); do
    (
        echo 0 >&9
        while :; do :; done
    ) &
done
await arrived 1000 # and not by pids.current, which counts the bomb's processes until they are reaped
await grep -q "frozen 1" $CGROUPS/crowd/cgroup.events
status before
echo 0 >$CGROUPS/crowd/cgroup.freeze
window 0 2
probe web thousand_probe
until_second $END
status thousand
wait $PROBES
emptied crowd
status after
state_is enabled || fail "the scheduler is gone"
stop
