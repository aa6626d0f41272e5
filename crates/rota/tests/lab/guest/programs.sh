# SPDX-License-Identifier: GPL-2.0-only
# Real programs on two CPUs, alone and then beside a tenant with a busy thread for each CPU: their profile, and in the
# same time what the kernel itself counts of each of their threads, and what they get done.
. /lab/lib.sh

# parallel SHAPE NAME: until what is measured is over; what it has done from about its begin on is told.
LASTS_NS=4200000000
parallel() {
    read -r now rest </proc/uptime
    now=$(echo $now | sed "s/[.]//; s/^0*//")0000000
    inside program rota-parallel $1 --threads 2 --compute-ns 250000 --start-ns $((now + 900000000)) \
        --end-ns $((now + LASTS_NS)) >/results/$2.json
}

# start PROGRAM NAME: in the tenant. What a compressor reads cannot be compressed, so that it has work.
start() {
    case $1 in
    barrier | pipeline) parallel $1 $2 & ;;
    openmp) (inside program openmp >/dev/null) & ;;
    openmp-passive) (export OMP_WAIT_POLICY=passive && inside program openmp >/dev/null) & ;;
    xz) (inside program /usr/bin/xz -0 --threads=2 --block-size=8KiB </dev/urandom >/dev/null) & ;;
    zstd) (inside program zstd -q -c -1 -T2 -B524288 </dev/urandom >/dev/null) & ;;
    redis)
        (inside program redis-server --bind 127.0.0.1 --port 6379 --save "" --appendonly no >/dev/null) &
        MAIN=$!
        await redis-cli ping >/dev/null 2>&1
        (inside program redis-benchmark -q -l -c 4 -t get >/dev/null) &
        CLIENT=$!
        return
        ;;
    esac
    MAIN=$!
    CLIENT=
}

# counts: the time; how many bytes the program has read and written; and of each thread its CPU time and its waits.
counts() {
    time=$(adjtimex | sed -n 's/^ *time.tv_u*sec: *//p')
    threads=
    while read -r id; do
        read -r ran waited turns </proc/$id/schedstat
        threads="$threads${threads:+,}[$id,$ran,$waited]"
    done <$CGROUPS/program/cgroup.threads
    bytes=0
    while read -r key value; do
        case $key in rchar: | wchar:) bytes=$((bytes + value)) ;; esac
    done </proc/$MAIN/io
    echo "{\"time\":[$(echo $time | tr " " ",")],\"bytes\":$bytes,\"threads\":[$threads]}"
}

# measured PROGRAM CASE: counted while the profile is made, not while it starts and ends, which takes CPU time.
measured() {
    start $1 $1-$2
    usleep 500000
    rota profile program --for 3s --json >/results/$1-$2.profile &
    PROFILE=$!
    usleep 400000
    counts >/results/$1-$2.before
    usleep 2400000
    counts >/results/$1-$2.after
    wait $PROFILE
    over $1
}

over() {
    case $1 in
    barrier | pipeline) wait $MAIN ;;
    *)
        kill $CLIENT $MAIN
        wait $CLIENT $MAIN || true
        ;;
    esac
}

# foretold PROGRAM: by the daemon's own samples.
foretold() {
    start $1 $1-foretold
    usleep 500000
    rota profile program --predict --json >/results/$1.foretold.json
    over $1
}

tenants program neighbour spare
up
busy spare
busy spare
head -c 1 /dev/urandom >/dev/null # the first read takes a second: the kernel gathers entropy
PROGRAMS=$(cat /lab/programs)
for program in $PROGRAMS; do measured $program alone; done
busy neighbour
busy neighbour
for program in $PROGRAMS; do measured $program beside; done
LASTS_NS=26000000000
for program in $(cat /lab/foretold); do foretold $program; done
stop
