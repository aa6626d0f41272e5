# SPDX-License-Identifier: GPL-2.0-only
# Five programs that always compute, in a container whose cpuset has two of three CPUs; how much each has had, before
# and after three seconds.
. /lab/lib.sh

# ticks: of user time, of each program.
ticks() {
    for program in $PROGRAMS; do cut -d' ' -f14 /proc/$program/stat; done
}

tenants kept
up
echo +cpuset >$CGROUPS/cgroup.subtree_control
echo 0-1 >$CGROUPS/kept/cpuset.cpus
PROGRAMS=
for turn in 1 2 3 4 5; do
    busy kept
    PROGRAMS="$PROGRAMS $BUSY"
done
sleep 0.2
ticks >/results/before.txt
sleep 3
ticks >/results/after.txt
status status
state_is enabled || fail "the scheduler is gone"
echo 1 >$CGROUPS/kept/cgroup.kill
stop
