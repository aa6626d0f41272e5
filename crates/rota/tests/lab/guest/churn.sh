# SPDX-License-Identifier: GPL-2.0-only
# A tenant comes, goes and comes again; processes move between tenants; a tenant has cgroups of its own.
. /lab/lib.sh

# has TENANT COUNT: whether it has so many runnable threads.
has() {
    [ "$(runnable $1)" = $2 ]
}

# runnable TENANT: how many threads it has that run or wait.
runnable() {
    rota status --json | grep -o '"name":"[^"]*"\|"runnable":[0-9]*' | grep -A1 "\"$1\"" | sed -n 's/"runnable"://p'
}

tenants web db
mkdir -p $CGROUPS/web/shard/worker
busy web/shard/worker
INNER=$BUSY
busy web
up

echo "cgroups inside a tenant are the tenant's"
await has web 2
status nested

echo "a process moves: to another tenant, to none, and back"
echo $BUSY >$CGROUPS/db/cgroup.procs
await has db 1
await has web 1
status moved
echo $BUSY >$CGROUPS/cgroup.procs
await has db 0
status outside
echo $INNER >$CGROUPS/db/cgroup.procs
echo $BUSY >$CGROUPS/web/shard/worker/cgroup.procs
await has db 1
await has web 1

echo "killed and removed"
echo 1 >$CGROUPS/web/cgroup.kill
wait $BUSY || true
for cgroup in web/shard/worker web/shard web; do await rmdir $CGROUPS/$cgroup; done
await logged "web: gone"
goes_on db
status removed

echo "made again"
tenants web
busy web
await logged "web: promised" 2
await has web 1
status again
stop
