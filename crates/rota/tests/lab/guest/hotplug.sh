# SPDX-License-Identifier: GPL-2.0-only
# CPU 1 goes while tenants run. Then it comes back, under a configuration that names it.
. /lab/lib.sh
CPU=/sys/devices/system/cpu/cpu1/online

# idly CGROUP: a program there that never ends. It is nice, because loading takes long beside others that are not.
idly() {
    busy $1
    renice -n 19 -p $BUSY
}

runs_on() {
    goes_on web
    goes_on batch
}

# freeze 1 or 0: both tenants stop, or go on.
freeze() {
    for tenant in web batch; do echo $1 >$CGROUPS/$tenant/cgroup.freeze; done
}

tenants web batch
up
idly web
idly batch
runs_on
echo 0 >$CPU
await logged "starting anew"
await logged ready 2
runs_on
status gone
stop

freeze 1 # loading takes long beside them
printf '\n[host]\ncpus = "0-1"\n' >>/etc/rota/rota.toml
up named
freeze 0
status named
echo 1 >$CPU
await logged "starting anew"
await logged ready 2
runs_on
status back
stop
