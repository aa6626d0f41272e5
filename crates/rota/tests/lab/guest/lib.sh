# SPDX-License-Identifier: GPL-2.0-only
# What the guests' scripts share. They end at the first thing that goes wrong, and say what it was.
set -eu

CGROUPS=/sys/fs/cgroup
SCHED_EXT=/sys/kernel/sched_ext

fail() {
    echo "FAILED: $*"
    exit 1
}

# await COMMAND...: until it succeeds. Minutes are for a machine that is stuck or busy: an emulated one may need one to
# verify the scheduler.
await() {
    for turn in $(seq 900); do
        if "$@"; then return; fi
        sleep 0.2
    done
    fail "waited in vain: $*"
}

# tenants NAME...: their cgroups.
tenants() {
    for tenant in "$@"; do mkdir $CGROUPS/$tenant; done
}

# up [NAME [OPTION...]]: starts `rota up`, logging to NAME.log, and waits until it is ready. Sets UP to its process.
up() {
    UP_LOG=/results/${1:-up}.log
    [ $# = 0 ] || shift
    rota up -c /etc/rota/rota.toml "$@" 2>$UP_LOG &
    UP=$!
    await logged ready
}

# logged TEXT [COUNT]: whether the log of `rota up` has it, in COUNT lines at least.
logged() {
    if [ ! -d /proc/$UP ]; then
        cat $UP_LOG
        fail "rota up has ended"
    fi
    [ $(grep -c -e "$1" $UP_LOG) -ge ${2:-1} ]
}

# stop: ends `rota up` as an operator would.
stop() {
    kill $UP
    wait $UP
}

# answered NAME: whether `rota status` has its answer in time. It is left as NAME.json.
answered() {
    rota status --json >/results/$1.json
}

# status NAME: the same, however long it takes: it waits five seconds, which is little on a machine that is slow.
status() {
    answered $1 || await answered $1
}

state_is() {
    [ $(cat $SCHED_EXT/state) = $1 ]
}

# inside CGROUP COMMAND...: runs it there, in the caller's place.
inside() {
    echo 0 >$CGROUPS/$1/cgroup.procs
    shift
    exec "$@"
}

# busy CGROUP: a program there that never ends. Sets BUSY to its process.
busy() {
    (inside $1 sh -c 'while :; do :; done') &
    BUSY=$!
}

# window FROM LENGTH: a time to measure in, from so many seconds from now on, and for so many seconds.
window() {
    read -r now rest </proc/uptime
    START=$((${now%.*} + 1 + $1))
    END=$((START + $2))
    PROBES=
}

# probe CGROUP [NAME]: one that measures there in the window, and leaves what it saw as NAME.json.
probe() {
    (inside $1 rota-probe --start-ns ${START}000000000 --end-ns ${END}000000000) >/results/${2:-$1}.json &
    PROBES="$PROBES $!"
}

# until_second SECOND [HUNDREDTHS]: sleeps until the machine is up for so long.
until_second() {
    read -r now rest </proc/uptime
    left=$(($1 * 100 + ${2:-0} - ${now%.*} * 100 - 1${now#*.} + 100))
    if [ $left -gt 0 ]; then usleep ${left}0000; fi
}

# used CGROUP: its CPU time so far, in microseconds.
used() {
    sed -n 's/^usage_usec //p' $CGROUPS/$1/cpu.stat
}

# goes_on CGROUP: waits until it has used more CPU time than now.
goes_on() {
    before=$(used $1)
    await used_more $1 $before
}

used_more() {
    [ $(used $1) -gt $2 ]
}
