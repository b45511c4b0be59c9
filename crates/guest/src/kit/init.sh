#!/bin/busybox sh
# The guest's first process: mounts, modules, address, the agent's samples, the command, its status, power off.
# /guest.conf sets MODULES, ADDRESS and INTERVAL. The first serial port is the console, the second the
# report (`kit/report.rs` reads it), the third what the command writes.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp
stty raw -echo < /dev/ttyS1
stty raw -echo < /dev/ttyS2
exec 3> /dev/ttyS1
. /guest.conf

for module in $MODULES; do
    insmod /lib/modules/$module.ko || echo "insmod $module failed"
done
ip link set lo up
if [ -n "$ADDRESS" ] && [ -e /sys/class/net/eth0 ]; then
    ip addr add "$ADDRESS" dev eth0
    ip link set eth0 up
fi

# A sample is written in one piece, as the command and the agent both do.
sample() {
    {
        read -r now _ < /proc/uptime
        echo "sample $1 $now"
        for file in stat interrupts softirqs net/softnet_stat net/dev net/snmp; do
            echo "file $file"
            sed 's/^/ /' /proc/$file
        done
        echo end
    } > /tmp/sample.$1
    cat /tmp/sample.$1 >&3
}

read -r now _ < /proc/uptime
echo "ready $now" >&3
sample first
if [ -n "$INTERVAL" ]; then
    while sleep "$INTERVAL"; do sample during; done &
    agent=$!
fi
sh /command > /dev/ttyS2 2>&1
status=$?
[ -n "$agent" ] && kill "$agent" && wait "$agent" 2> /dev/null
sample last
echo "exit $status" >&3
# The ports are emptied before power goes: setting a mode waits for that.
for port in 1 2; do stty raw -echo < /dev/ttyS$port; done
reboot -f
