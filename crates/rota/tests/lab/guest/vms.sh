# SPDX-License-Identifier: GPL-2.0-only
# VMs under KVM: two that count, beside tenants that always compute. Then two, one after the other, in which one vCPU
# counts at a time, and three wait for it busily.
. /lab/lib.sh

# vm NAME: one that counts for four seconds.
vm() {
    (inside $1 rota-vm --vcpus 2 --seconds 4 >/results/$1.json) &
    VMS="$VMS $!"
}

tenants gang apart left spare gives keeps
up
busy left
busy spare
busy spare
VMS=
vm gang
vm apart
await logged "vCPU threads of 2" 2
sleep 1
status status
wait $VMS
for tenant in left spare; do echo 1 >$CGROUPS/$tenant/cgroup.kill; done
for vm in gives keeps; do
    (inside $vm rota-vm --vcpus 4 --by-turns --seconds 1) >/results/$vm.json
    answered after-$vm
done
state_is enabled || fail "the scheduler is gone"
stop
