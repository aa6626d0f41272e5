# SPDX-License-Identifier: GPL-2.0-only
# Tenants of every class want more than there is; then those that were served by weight are gone, and CPUs idle; then a
# single thread runs for two vCPUs.
. /lab/lib.sh
tenants web build light batch heavy spare
up

# probes WHEN TENANT COUNT: so many threads there that measure.
probes() {
    for i in $(seq 0 $(($3 - 1))); do probe $2 $1_$2_$i; done
}

window 3 4
probes busy spare 2
probes busy web 3
probes busy light 2
probes busy batch 8
probes busy heavy 20
wait $PROBES
status status
window 1 1
probes idle spare 2
busy web
wait $PROBES
window 1 1
probe build build
wait $PROBES
state_is enabled || fail "the scheduler is gone"
stop
