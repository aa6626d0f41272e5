# SPDX-License-Identifier: GPL-2.0-only
# The same load under the FIFO and under each build of Rota: in each of four cgroups a pair of processes that pass a
# byte to and fro, and in two more a loop. Then a crowd under each build of Rota: 32 threads of one tenant that meet at
# a barrier. The kernel counts what each BPF operation costs.
set -e
cd /tmp
sysctl -q -w kernel.bpf_stats_enabled=1
for tenant in pair-0 pair-1 pair-2 pair-3 loop-0 loop-1 crowd; do mkdir /sys/fs/cgroup/$tenant; done

# load SECONDS
load() {
    for tenant in pair-0 pair-1 pair-2 pair-3; do
        sh -c "echo \$\$ >/sys/fs/cgroup/$tenant/cgroup.procs; exec stress-ng -q --switch 1 --timeout $1" &
    done
    for tenant in loop-0 loop-1; do
        sh -c "echo \$\$ >/sys/fs/cgroup/$tenant/cgroup.procs; exec stress-ng -q --cpu 1 --timeout $1" &
    done
}

rota-fifo run 5 &
fifo=$!
sleep 1
load 3
sleep 2
rota-fifo costs fifo_ >/results/fifo.json
wait

# crowd: for three seconds.
crowd() {
    read -r now rest </proc/uptime
    start=$(echo $now | sed "s/[.]//; s/^0*//")0000000
    sh -c "echo \$\$ >/sys/fs/cgroup/crowd/cgroup.procs; exec rota-parallel barrier --threads 32 --compute-ns 250000 \
        --start-ns $start --end-ns $((start + 3000000000))" >/dev/null &
}

# costs BUILD LOAD
costs() {
    rm -f /tmp/up.log
    rota-$1 up -c /lab/$2.toml --socket /tmp/rota.sock 2>/tmp/up.log &
    rota=$!
    until grep -qs ready /tmp/up.log; do sleep 0.2; done
    $2 3
    sleep 2
    rota-fifo costs rota_ >/results/$2-$1.json
    kill $rota
    wait
}

build=0
while [ $build -lt $BUILDS ]; do
    costs $build load
    costs $build crowd
    build=$((build + 1))
done
