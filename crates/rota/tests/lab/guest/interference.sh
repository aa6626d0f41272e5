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
