# SPDX-License-Identifier: GPL-2.0-only
# Tenants that compute on two CPUs, and change places for a while.
. /lab/lib.sh

NAMES="t0 t1 t2 t3 t4 t5"
tenants $NAMES
up
for tenant in $NAMES; do busy $tenant; done
window 1 $(cat /lab/seconds)
until_second $START
status before
until_second $END
status after
stop

# Once more, with something that is counted: three compute, all of them on one CPU to begin with.
for tenant in $NAMES; do echo 1 >$CGROUPS/$tenant/cgroup.kill; done
export ROTA_SOFTWARE_EVENTS=1
up counted
for tenant in t0 t2 t4; do busy $tenant; done
hungry() { answered counted && grep -q '"hungry":'$1, /results/counted.json; }
await hungry 3
await logged "have changed places: "
sleep 1
status counted
stop
