# SPDX-License-Identifier: GPL-2.0-only
# Tenants whose vCPUs do not each fit on one CPU. All of them want all they can get, but those that are called idle.
# Then the same under an edited configuration, if there is one.
. /lab/lib.sh

NAMES=$(sed -n 's/^match = { cgroup = "\(.*\)" }$/\1/p' /etc/rota/rota.toml)
tenants $NAMES
up
for tenant in $NAMES; do
    case $tenant in
    idle-*) ;;
    *) busy $tenant ;;
    esac
done

# measured NAME: what is counted in three seconds.
measured() {
    window 0 3
    until_second $START
    status before$1
    until_second $END
    status after$1
}

measured ""
if [ -e /lab/edited.toml ]; then
    mv /lab/edited.toml /etc/rota/rota.toml
    await logged "table 2 in force"
    measured -edited
fi
stop
