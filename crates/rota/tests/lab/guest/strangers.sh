# SPDX-License-Identifier: GPL-2.0-only
# A user makes cgroups in one that is delegated: deeper than a path can be, hundreds, called like a container, with ESC.
. /lab/lib.sh

# up_as_the_unit: with the capabilities of the configuration's first line. (busybox has a setpriv without bounds.)
up_as_the_unit() {
    UP_LOG=/results/up.log
    /usr/bin/setpriv --no-new-privs --bounding-set "$(sed -n '1s/^# //p' /etc/rota/rota.toml)" \
        rota up -c /etc/rota/rota.toml 2>$UP_LOG &
    UP=$!
    await logged ready
}

tenants web user
busy web
up_as_the_unit
goes_on web
status before

chown 1000 $CGROUPS/user
cd $CGROUPS/user
mkdir 0123456789ab "$(printf 'a\033[31mb\rc')"
for number in $(seq 500); do mkdir $number; done
for number in $(seq 500); do rmdir $number; done
name=$(printf '%0200d' 0)
(
    set +e
    for level in $(seq 25); do
        mkdir $name
        cd -P $name 2>/dev/null
    done
)
# Until the daemon has read the tree anew.
sleep 12
goes_on web
status after
state_is enabled || fail "the scheduler is gone"
cd /
stop
