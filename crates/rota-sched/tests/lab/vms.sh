# SPDX-License-Identifier: GPL-2.0-only
# Two virtual machines and a busy container under `rota up`; leaves in /results what each was promised and received.
set -e
in_cgroup() {
    cgroup=/sys/fs/cgroup/$1
    shift
    mkdir $cgroup
    sh -c 'echo 0 >$0/cgroup.procs; exec "$@"' $cgroup "$@" &
}
rota up -c /etc/vms.toml --socket /tmp/rota.sock 2>/results/up.log &
rota=$!
until grep -q ready /results/up.log; do
    kill -0 $rota
    sleep 0.1
done
in_cgroup large rota-vm --vcpus 2 --seconds 9 >/results/large.json
large=$!
in_cgroup small rota-vm --vcpus 2 --seconds 9 >/results/small.json
small=$!
in_cgroup busy sh -c 'while :; do :; done'
# A status is about the last five seconds.
sleep 8
rota status --socket /tmp/rota.sock --json >/results/status.json
echo 1 >/sys/fs/cgroup/busy/cgroup.kill
wait $large
wait $small
kill $rota
wait $rota
