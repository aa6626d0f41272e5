# SPDX-License-Identifier: GPL-2.0-only
# Two VMs, each with a vCPU and a monitor that compute all the time. A shell stands in for QEMU.
. /lab/lib.sh

# vm NAME: starts it, and leaves the ids of its two processes.
vm() {
    (inside $1 /run/qemu-system-x86_64 -c '
        (
            printf "CPU 0/KVM" >/proc/$BASHPID/comm
            echo $BASHPID >/run/$1-vcpu
            while :; do :; done
        ) &
        echo $$ >/run/$1-monitor
        while :; do :; done
    ' -name $1) &
}

# spent WHEN: the CPU time of all four so far, in hundredths of a second.
spent() {
    for name in web plain; do
        for part in vcpu monitor; do
            stat=$(cut -d')' -f2 /proc/$(cat /run/$name-$part)/stat)
            echo $stat | cut -d' ' -f12,13 | tr ' ' + | { read sum; echo $((sum)); } >/results/$name-$part-$1
        done
    done
}

tenants web plain
cp $(command -v bash) /run/qemu-system-x86_64
up
vm web
vm plain
await logged 'web: 1 vCPU threads of 1'
await logged 'plain: 1 vCPU threads of 1'
await logged 'io: promised'
window 1 4
until_second $START
spent before
until_second $END
spent after
status after
state_is enabled || fail "the scheduler is gone"
stop
