# SPDX-License-Identifier: GPL-2.0-only
# Two VMs of two vCPUs each under KVM, beside tenants that always compute.
. /lab/lib.sh

# vm NAME: one that counts for four seconds.
vm() {
    (inside $1 rota-vm --vcpus 2 --seconds 4 >/results/$1.json) &
    VMS="$VMS $!"
}

tenants gang apart left spare
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
state_is enabled || fail "the scheduler is gone"
stop
