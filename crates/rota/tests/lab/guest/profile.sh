# SPDX-License-Identifier: GPL-2.0-only
# Threads that wait for all sorts of things, each sort in a tenant of its own; then two that want the CPU.
. /lab/lib.sh

# waits CGROUP PERL: a program there that waits as the text says, for ever.
waits() {
    (inside $1 perl -e "$2" 2>>/results/waits.log) &
}

FUTEX='$f = pack("L", 0); syscall(202, $f, 0, 0, 0, 0, 0);'
PIPE='pipe(R, W);'

tenants others devices time unknown web batch
up
waits others "$FUTEX"
waits others "if (fork) { wait } else { $FUTEX }"
waits others "if (fork) { syscall(247, 0, 0, 0, 4, 0) } else { $FUTEX }"
waits others 'open(F, ">/held"); flock(F, 2); if (fork) { '"$FUTEX"' } else { open(G, ">/held"); flock(G, 2) }'
waits devices "$PIPE"' sysread(R, $x, 1)'
waits devices "$PIPE"' syswrite(W, "x" x 100000)'
waits devices "$PIPE"' syscall(7, pack("iss", fileno(R), 1, 0), 1, -1)'
waits devices "$PIPE"' syscall(271, pack("iss", fileno(R), 1, 0), 1, 0, 0, 8)'
waits devices "$PIPE"' vec($v = "", fileno(R), 1) = 1; select($v, undef, undef, undef)'
waits devices '$e = syscall(291, 0); $b = " " x 12; syscall(232, $e, $b, 1, -1)'
waits devices '$e = syscall(291, 0); $b = " " x 12; syscall(281, $e, $b, 1, -1, 0, 8)'
waits devices 'socketpair(A, B, 1, 1, 0); recv(A, $x, 1, 0)'
waits devices 'socketpair(A, B, 1, 1, 0); while (1) { send(A, "x" x 4096, 0) }'
waits devices 'socket(S, 1, 1, 0); bind(S, pack("Sa*", 1, "\0rota")); listen(S, 1); accept(C, S)'
waits devices '$p = "/fifo"; syscall(133, $p, 010600, 0); open(F, "<", $p)'
waits time 'sleep(9999)'
waits time '$t = pack("qq", 9999, 0); syscall(35, $t, 0)'
waits unknown 'syscall(34)'
waits unknown '$m = pack("Q", 0); syscall(130, $m, 8)'
usleep 5000000
for tenant in others devices time unknown; do
    rota profile $tenant --for 1s --json >/results/$tenant.json
done
busy web
busy batch
usleep 1000000
# The guest has no PMU: the kernel counts how long threads run, instead of cycles.
ROTA_SOFTWARE_EVENTS=1 rota profile web --for 5s --json >/results/web.json
rota profile web --for 3s --report /results/web.html >/results/web.txt
status after
cat /results/web.txt
stop
