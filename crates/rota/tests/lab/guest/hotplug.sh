# SPDX-License-Identifier: GPL-2.0-only
# CPU 1 goes while tenants run. Then it comes back, under a configuration that names it.
. /lab/lib.sh
CPU=/sys/devices/system/cpu/cpu1/online

runs_on() {
    goes_on web
    goes_on batch
}

tenants web batch
busy web
busy batch
up
echo 0 >$CPU
await logged "starting anew"
await logged ready 2
runs_on
status gone
stop

printf '\n[host]\ncpus = "0-1"\n' >>/etc/rota/rota.toml
up named
status named
echo 1 >$CPU
await logged "starting anew"
await logged ready 2
runs_on
status back
stop
