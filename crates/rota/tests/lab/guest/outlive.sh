# SPDX-License-Identifier: GPL-2.0-only
# However the daemon ends, two tenants run on: it is killed again and again, in the middle of edits too, and the next
# one takes the scheduler over. Then one stands still for longer than the grace time, and no other comes.
. /lab/lib.sh
KILLS=$(cat /lab/kills)

# edit SHARE: what web is promised.
edit() {
    sed "s/share = 0.3/share = $1/" /lab/rota.toml >/etc/rota/new.toml
    mv /etc/rota/new.toml /etc/rota/rota.toml
}

# killed: as by the kernel, and the scheduler goes on.
killed() {
    kill -9 $UP
    wait $UP || true
    state_is enabled || fail "the scheduler has ended with the daemon"
}

# taken_over NAME [OPTION...]: by the next daemon.
taken_over() {
    up "$@"
    logged "scheduler taken over" || fail "the scheduler was not taken over"
}

# freeze 1 or 0: both tenants stop, or go on.
freeze() {
    for tenant in web batch; do echo $1 >$CGROUPS/$tenant/cgroup.freeze; done
}

gone() {
    state_is disabled || fail "the scheduler is still there"
    [ ! -e /sys/fs/bpf/rota/link ] || fail "its link is still there"
    goes_on web
    goes_on batch
}

mount -t bpf bpf /sys/fs/bpf
cp /etc/rota/rota.toml /lab/rota.toml
tenants web batch
# As long as it takes on a machine that is slow: an edit may wait for a table.
up first --grace 120s
busy web
busy batch
goes_on web
status before

echo "a second one, while this one runs"
status=0
rota up -c /etc/rota/rota.toml 2>/results/second.log || status=$?
[ $status = 1 ] || fail "a second rota up ended with $status"
state_is enabled || fail "the second rota up ended the first one's scheduling"
status after_second

echo "killed"
read -r began rest </proc/uptime
used web >/results/used_before
for turn in $(seq $KILLS); do
    edit 0.$((30 + turn % 2 * 10))
    usleep $((turn * 7919 % 311 * 1000))
    killed
    taken_over turn --grace 120s
done
used web >/results/used_after
read -r ended rest </proc/uptime
echo "$began $ended" >/results/uptimes
status after

echo "left to the next daemon"
kill -USR1 $UP
wait $UP || fail "the daemon ended with $?"
state_is enabled || fail "the scheduler has not been left"
taken_over last --grace 120s

echo "ended with the daemon"
rota down 2>/results/down.log
wait $UP || fail "the daemon ended with $?"
gone

echo "no daemon comes back"
freeze 1 # loading takes long beside them
up abandoned --grace 2s
rota-hold $UP --for-ms 4000 # the daemon lives all the same
state_is enabled || fail "the scheduler has ended while the daemon stood still"
freeze 0
killed
await state_is disabled
rota down 2>>/results/down.log
gone
