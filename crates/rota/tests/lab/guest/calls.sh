# SPDX-License-Identifier: GPL-2.0-only
# All that can happen to threads, in tenants of every class, while the kernel's calls of the scheduler are traced. The
# CPUs are busy first, and then idle now and then.
. /lab/lib.sh
tenants web batch other spare
up
busy batch
HOG=$BUSY
HOGS=
for tenant in web batch other spare; do
    busy $tenant
    HOGS="$HOGS $BUSY"
done

# naps CGROUP HUNDREDTHS: one that sleeps so long, and lets children live for a moment, again and again.
naps() {
    (inside $1 sh -c "while :; do usleep ${2}0000; /bin/true; done") &
}
naps web 1
naps batch 1
naps other 2
naps spare 3
naps . 1

mkfifo /until
rota-calls rota_ </until >/results/calls.txt &
CALLS=$!
exec 3>/until
window 0 1
read -r now rest </proc/uptime
while [ ${now%.*} -lt $END ]; do
    for cpus in 1 2 3; do
        taskset -p $cpus $HOG >/dev/null
        usleep 20000
    done
    renice -n 5 -p $HOG
    rota-realtime $HOG --ms 5
    echo $HOG >$CGROUPS/other/cgroup.procs
    usleep 20000
    echo $HOG >$CGROUPS/web/cgroup.procs
    usleep 20000
    echo $HOG >$CGROUPS/batch/cgroup.procs
    read -r now rest </proc/uptime
done
kill $HOGS $HOG
usleep 500000
exec 3>&-
wait $CALLS || fail "the calls could not be traced"
state_is enabled || fail "the scheduler is gone"
stop
