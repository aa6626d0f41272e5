#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The guest's first process: sets the machine up as a small server's would be, runs /lab/command, and sends its exit
# status and /results to the host over the virtio port. A machine that is to be saved is saved before it has its files.
export PATH=/usr/local/bin:/usr/sbin:/usr/bin HOME=/root TERM=dumb LANG=C.UTF-8

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/shm /dev/pts
mount -t devpts devpts /dev/pts
for folder in /tmp /run /dev/shm; do mount -t tmpfs tmpfs $folder; done
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
mount -t bpf bpf /sys/fs/bpf
mount -t debugfs debugfs /sys/kernel/debug
mount -t tracefs tracefs /sys/kernel/tracing
for controller in cpu cpuset memory pids io; do
    echo +$controller >/sys/fs/cgroup/cgroup.subtree_control
done
ip link set lo up
hostname rota
ulimit -n 65536

if [ -x /lab/wake ]; then
    /lab/wake | (cd / && cpio -idu --quiet) || poweroff -f
fi

for module in $(cat /lab/modules); do
    insmod "$module" || echo "lab: cannot load $module"
done

mkdir -p /results
cd /root
sh /lab/command </dev/null
echo $? >/lab/status
cd /
tar -cf /dev/vport0p1 lab/status results
poweroff -f
