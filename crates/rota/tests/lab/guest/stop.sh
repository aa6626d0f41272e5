# SPDX-License-Identifier: GPL-2.0-only
# The daemon is refused, killed and stopped; two tenants run on all the time.
. /lab/lib.sh

runs_on() {
    goes_on web
    goes_on batch
}

tenants web batch
busy web
busy batch
up
runs_on
status before

echo "a second one, while this one runs"
status=0
rota up -c /etc/rota/rota.toml 2>/results/second.log || status=$?
[ $status = 1 ] || fail "a second rota up ended with $status"
state_is enabled || fail "the second rota up ended the first one's scheduling"
runs_on
status after_second

echo "killed"
kill -9 $UP
wait $UP || true
await state_is disabled
runs_on

echo "started anew"
up again
runs_on
status again

echo "stopped"
stop
state_is disabled || fail "stopped, and the scheduler is still there"
runs_on
