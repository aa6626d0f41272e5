# SPDX-License-Identifier: GPL-2.0-only
# The configuration is edited while it is in use: wrongly, then well, then so that somebody does not fit.
. /lab/lib.sh
CONFIG=/etc/rota/rota.toml

reserve() {
    printf '\n[[tenant]]\nname = "%s"\nclass = "reserved"\nshare = %s\nlatency = "20ms"\n' $1 $2
    printf 'match = { cgroup = "%s" }\n' $1
}

# append: what it reads, at once: on a slow machine half of it could pass for an edit.
append() {
    cat >/tmp/more
    cat /tmp/more >>$CONFIG
}

tenants web db big
busy web
up
status before

cp $CONFIG /tmp/good
reserve db 1.5 | append
await logged "edited configuration is not used"
status wrong

cp /tmp/good /tmp/next
reserve db 0.2 >>/tmp/next
mv /tmp/next $CONFIG
await logged "db: promised"
status right

{ reserve big 0.97 && echo 'vcpus = 2'; } | append
await logged "big: does not fit"
status infeasible
goes_on web
stop
