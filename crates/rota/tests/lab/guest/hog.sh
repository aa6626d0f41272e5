# SPDX-License-Identifier: GPL-2.0-only
# For a second a real-time program takes the CPU, slots and all.
. /lab/lib.sh
tenants web batch light heavy
up up --metrics 127.0.0.1:9717
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
# In bash, as busybox has no client that runs without the libraries that look names up.
bash -c 'exec 3<>/dev/tcp/127.0.0.1/9717 && printf "GET /metrics HTTP/1.1\r\n\r\n" >&3 && cat <&3 >/results/metrics'
state_is enabled || fail "the scheduler is gone"
stop
