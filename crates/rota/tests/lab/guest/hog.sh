# SPDX-License-Identifier: GPL-2.0-only
# For a second a real-time program takes the CPU, slots and all.
. /lab/lib.sh
tenants web batch light heavy
up
for tenant in batch light heavy; do busy $tenant; done
window 1 4
probe web
until_second $START
status before
until_second $((START + 1))
chrt -f 50 rota-probe --seconds 1 >/results/hog.json
status hogged
wait $PROBES
status after
state_is enabled || fail "the scheduler is gone"
stop
