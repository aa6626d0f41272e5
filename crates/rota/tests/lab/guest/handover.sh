# SPDX-License-Identifier: GPL-2.0-only
# Tenants whose vCPUs do not each fit on one CPU. All of them want all they can get, but those that are called idle.
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
window 0 3
until_second $START
status before
until_second $END
status after
stop
