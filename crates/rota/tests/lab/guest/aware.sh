# SPDX-License-Identifier: GPL-2.0-only
# CPU 1 is taken away by a real-time thread between its slots. Programs whose threads wait for each other run there and
# on CPU 0, without `rota guest` and with it. Then that is killed, and they go on.
. /lab/lib.sh

# works NAME COMMAND...: in six tenths of a second, with CPU 1 taken away.
works() {
    name=$1
    shift
    read -r now rest </proc/uptime
    start=$(echo $now | sed "s/[.]//; s/^0*//")0000000
    from=$((start + 100000000)) to=$((start + 700000000))
    rota-taken /lab/timetable --start-ns $start --end-ns $to >/results/taken-$name &
    "$@" --start-ns $from --end-ns $to >/results/$name.json
    wait $!
}

# all HOW: both programs.
all() {
    works barrier-$1 rota-parallel barrier --threads 2 --compute-ns 300000
    works spin-$1 rota-spin flag --threads 4 --outside 300000 --inside 30000
}

# guest NAME SOURCE...: starts it, and sets GUEST to its process.
guest() {
    name=$1
    shift
    rota guest "$@" >/results/$name.txt 2>/results/$name.log &
    GUEST=$!
    await grep -q 'timetable 1' /results/$name.log
}

# host: sends what is in /lab/sent, and sets HOST to its process.
host() {
    timetables /lab/sent 1 2>/results/host.log &
    HOST=$!
}

echo "a file that is wrong"
sed 's/0-5135130/0_5/' /lab/timetable >/lab/bad
status=0
rota guest /lab/bad 2>/results/refused.log || status=$?
[ $status = 2 ] || fail "a wrong file ended rota guest with $status"

echo "without"
all without
echo "with"
cp /lab/timetable /lab/sent
host
guest guest
all with
kill $HOST
wait $HOST || true
await grep -q 'not heard of any more' /results/guest.log
sed 's/generation 1/generation 2/' /lab/timetable >/lab/sent
host
await grep -q 'timetable 2' /results/guest.log
rm /lab/sent
await grep -q 'has gone; going by steal time' /results/guest.log
cp /lab/timetable /lab/sent
await eval '[ $(grep -c "timetable 1" /results/guest.log) = 2 ]'
kill $GUEST
wait $GUEST || fail "rota guest ended with $?"
state_is disabled || fail "its scheduler is still there"

echo "killed"
guest killed /lab/timetable
rota-parallel barrier --threads 2 --compute-ns 300000 --start-ns 0 --end-ns 99000000000000 &
PROGRAM=$!
sleep 0.3
kill -9 $GUEST
await state_is disabled
before=$(cut -d' ' -f14 /proc/$PROGRAM/stat)
sleep 0.3
[ $(cut -d' ' -f14 /proc/$PROGRAM/stat) -gt $before ] || fail "the program has stopped"
kill $PROGRAM
