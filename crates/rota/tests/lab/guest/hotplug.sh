# SPDX-License-Identifier: GPL-2.0-only
# CPU 1 goes and comes back while tenants run, then goes although the configuration names it.
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
for online in 0 1; do
    echo $online >$CPU
    await logged "starting anew" $((online + 1))
    await logged ready $((online + 2))
    runs_on
    status online_$online
done
stop

printf '\n[host]\ncpus = "0-1"\n' >>/etc/rota/rota.toml
up named
echo 0 >$CPU
await logged "starting anew"
await logged ready 2
runs_on
status named
stop
