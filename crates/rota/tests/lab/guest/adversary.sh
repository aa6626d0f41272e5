# SPDX-License-Identifier: GPL-2.0-only
# A hostile tenant beside eight reserved ones that want all they are promised. The daemon has what its unit leaves it.
. /lab/lib.sh
read -r SECONDS_LONG LIMITS </lab/adversary

# spent: the daemon's CPU time so far, in hundredths of a second.
spent() {
    set -- $(cut -d')' -f2 /proc/$UP/stat)
    echo $((${12} + ${13}))
}

# up_as_the_unit: with the capabilities of the configuration's first line. (busybox has a setpriv without bounds.)
up_as_the_unit() {
    UP_LOG=/results/up.log
    /usr/bin/setpriv --no-new-privs --bounding-set "$(sed -n '1s/^# //p' /etc/rota/rota.toml)" \
        rota up -c /etc/rota/rota.toml 2>$UP_LOG &
    UP=$!
    await logged ready
}

# deep: cgroups deeper than a path can be.
deep() {
    cd $CGROUPS/user
    name=$(printf '%0200d' 0)
    for level in $(seq 25); do
        mkdir $name || true
        cd -P $name 2>/dev/null || true
    done
}

TENANTS="t0 t1 t2 t3 t4 t5 t6 t7"
tenants $TENANTS user
chown -R 1000 $CGROUPS/user
up_as_the_unit
for tenant in $TENANTS; do busy $tenant; done
sleep 1
status before
(deep)
window 0 $SECONDS_LONG
spent >/results/spent_before
inside user rota-adversary $CGROUPS/user $LIMITS --end-ns ${END}000000000 >/adversary.log &
until_second $END
spent >/results/spent_after
sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' /proc/$UP/status >/results/memory_kib
status after
# Its last word: where it has bound itself to a CPU without a slot of its own, it may not come to another one.
tail -n 1 /adversary.log >/results/done.json
for tenant in $TENANTS; do goes_on $tenant; done
state_is enabled || fail "the scheduler is gone"
stop
