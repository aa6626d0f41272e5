# SPDX-License-Identifier: GPL-2.0-only
# CPU 1 is taken away by a real-time thread between its slots. Programs whose threads wait for each other run there and
# on CPU 0, without `rota guest` and with it. Then that is killed, and they go on.
. /lab/lib.sh

# works NAME COMMAND...: in six tenths of a second, with CPU 1 taken away.
works() {
    name=$1
    shift
    read -r now rest </proc/uptime
    start=${now%.*}${now#*.}0000000
    from=$((start + 100000000)) to=$((start + 700000000))
    rota-taken /lab/timetable --start-ns $start --end-ns $to >/results/taken-$name &
    "$@" --start-ns $from --end-ns $to >/results/$name.json
    wait $!
}

# all HOW: both programs.
all() {
    works barrier-$1 rota-parallel barrier --threads 2 --compute-ns 300000
    works spin-$1 rota-spin flag --threads 2 --outside 300000 --inside 30000
}

# guest NAME: starts it, and sets GUEST to its process.
guest() {
    rota guest /lab/timetable >/results/$1.txt 2>/results/$1.log &
    GUEST=$!
    await grep -q 'timetable 1' /results/$1.log
}

echo "a file that is wrong"
sed 's/0-5135130/0_5/' /lab/timetable >/lab/bad
status=0
rota guest /lab/bad 2>/results/refused.log || status=$?
[ $status = 2 ] || fail "a wrong file ended rota guest with $status"

echo "without"
all without
echo "with"
guest guest
all with
kill $GUEST
wait $GUEST || fail "rota guest ended with $?"
state_is disabled || fail "its scheduler is still there"

echo "killed"
guest killed
rota-parallel barrier --threads 2 --compute-ns 300000 --start-ns 0 --end-ns 99000000000000 &
PROGRAM=$!
sleep 0.3
kill -9 $GUEST
await state_is disabled
before=$(cut -d' ' -f14 /proc/$PROGRAM/stat)
sleep 0.3
[ $(cut -d' ' -f14 /proc/$PROGRAM/stat) -gt $before ] || fail "the program has stopped"
kill $PROGRAM
