# SPDX-License-Identifier: GPL-2.0-only
# What an operator asks, before Rota runs and while it does.
. /lab/lib.sh

tenants web
if rota doctor --json >/results/before.json; then fail "db is not there, and the doctor has no problem"; fi
if rota up --dry-run >/results/dry-run.txt; then fail "db is not there, and the dry run does not mind"; fi
state_is disabled || fail "a dry run has loaded the scheduler"

tenants db
busy web
up
rota doctor --json >/results/running.json || fail "the doctor has a problem"

# A terminal of its own, until what web is promised is on it.
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts 2>/dev/null || true
mkfifo /tmp/keys
TERM=xterm SHELL=/bin/sh script -qfc 'stty cols 80 rows 24; exec rota top' /results/top.txt </tmp/keys >/dev/null &
SCRIPT=$!
exec 3>/tmp/keys
await grep -q 0.300 /results/top.txt
kill $SCRIPT
stop
