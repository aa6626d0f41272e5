# SPDX-License-Identifier: GPL-2.0-only
# Eight threads on one CPU that wait busily for each other, in many ways, and eight that compute. What one thread does
# alone is what eight do if nobody waits in vain.
. /lab/lib.sh

# spins NAME CGROUP KIND THREADS: for a fifth of a second, while all other tenants sleep.
spins() {
    read -r now rest </proc/uptime
    start=$(echo $now | sed "s/[.]//; s/^0*//")0000000
    (inside $2 rota-spin $3 --threads $4 --outside 400000 --inside 50000 \
        --start-ns $((start + 50000000)) --end-ns $((start + 250000000))) >/results/$1.json
}

tenants on off reserved
up
spins alone on ticket 1
for kind in ticket flag; do spins off-$kind off $kind 8; done
for kind in ticket flag; do spins reserved-$kind reserved $kind 8; done
for kind in tas ttas cas ticket partitioned array mcs clh pthread flag counting yielding; do
    spins $kind on $kind 8
    answered after-$kind
done
for kind in sum copy crc matrix chase sort delay float; do
    spins $kind on $kind 8
    answered after-$kind
done
stop
