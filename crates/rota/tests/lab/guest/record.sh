# SPDX-License-Identifier: GPL-2.0-only
# A hog, two processes that pass pages through a pipe, and one that sleeps and wakes, under the kernel's scheduler.
. /lab/lib.sh
echo +cpu >$CGROUPS/cgroup.subtree_control
tenants hog pipe sleeper
echo 50 >$CGROUPS/hog/cpu.weight
busy hog
(inside pipe stress-ng --quiet --pipe 1 --timeout 60) &
(inside sleeper stress-ng --quiet --nanosleep 1 --nanosleep-threads 4 --timeout 60) &
sleep 1
rota record --for 1s --out /results/mix.recording 2>/results/record.log &
RECORD=$!
await grep -q '1 s: ' /results/record.log
for tenant in hog pipe sleeper; do echo 1 >$CGROUPS/$tenant/cgroup.kill; done
wait $RECORD
