#!/bin/busybox sh
# First process of a guest. Mounts the host's files below an overlay as the root, then runs the list of tests.
# Options in the kernel's command line: tahti.cgroup=v2|v1|none tahti.init=plain|systemd tahti.tree=FOLDER
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
cgroup=v2
init=plain
tree=
for word in $(cat /proc/cmdline); do
    case $word in
        tahti.cgroup=*) cgroup=${word#*=} ;;
        tahti.init=*) init=${word#*=} ;;
        tahti.tree=*) tree=${word#*=} ;;
    esac
done
while read -r module; do insmod "/modules/$module"; done </modules/order

p9=trans=virtio,version=9p2000.L,msize=512000
mkdir -p /host /over
mount -t 9p -o $p9,ro,cache=loose host /host
mount -t tmpfs over /over
mkdir /over/upper /over/work /over/root
root=/over/root
if [ -z "$tree" ]; then
    mount -t overlay -o lowerdir=/host,upperdir=/over/upper,workdir=/over/work over $root
else
    # The host's programs are for another processor. The root has busybox, and the host's folder with the tests.
    for place in bin dev etc proc root run sys tmp "$tree"; do mkdir -p "$root/$place"; done
    mount --bind "/host$tree" "$root$tree"
    cp /bin/busybox $root/bin/busybox
    chroot $root /bin/busybox --install -s /bin
    echo root:x:0:0:root:/root:/bin/sh >$root/etc/passwd
    echo root:x:0: >$root/etc/group
    echo 127.0.0.1 localhost >$root/etc/hosts
fi
for place in proc sys dev; do mount --move /$place $root/$place; done
mkdir -p $root/dev/pts $root/dev/shm $root/out
mount -t devpts pts $root/dev/pts
mount -t tmpfs shm $root/dev/shm
mount -t tmpfs run $root/run
mount -t tracefs trace $root/sys/kernel/tracing
mount -t debugfs debug $root/sys/kernel/debug
mount -t 9p -o $p9 out $root/out
hostname guest
ip link set lo up

if [ $init = systemd ]; then
    # PID 1 is systemd from the host's files. One unit runs the tests. No other unit of the host is started.
    units=$root/run/systemd/system
    mkdir -p $units
    rm -f $root/etc/fstab $root/etc/machine-id
    echo 0123456789abcdef0123456789abcdef >$root/etc/machine-id
    cat >$units/tahti-tests.service <<UNIT
[Unit]
Description=The tests of this guest
DefaultDependencies=no
After=basic.target
[Service]
Type=oneshot
Slice=system.slice
StandardOutput=file:/out/log
StandardError=inherit
Environment=HOME=/root
ExecStart=/bin/sh /out/run.sh
ExecStopPost=/bin/sh -c 'sync; printf "\\\\020" | dd of=/dev/port bs=1 seek=244; systemctl --force --force poweroff'
UNIT
    cat >$units/tahti-tests.target <<UNIT
[Unit]
Requires=tahti-tests.service systemd-journald.service
After=basic.target
UNIT
    for unit in systemd-udevd.service systemd-udev-trigger.service systemd-timesyncd.service systemd-logind.service \
        systemd-resolved.service systemd-networkd.service; do
        ln -s /dev/null $units/$unit
    done
    # Disable the host's generators: the guest starts none of their units, and each reload would run all of them.
    mkdir -p $root/run/systemd/system-generators
    for generator in $root/lib/systemd/system-generators/*; do
        ln -s /dev/null $root/run/systemd/system-generators/${generator##*/}
    done
    exec chroot $root /lib/systemd/systemd --unit=tahti-tests.target --log-target=kmsg --log-level=warning
fi

case $cgroup in
    v2) mount -t cgroup2 cgroup $root/sys/fs/cgroup ;;
    v1)
        mount -t tmpfs cgroup $root/sys/fs/cgroup
        for controller in cpuset cpu; do
            mkdir $root/sys/fs/cgroup/$controller
            mount -t cgroup -o $controller cgroup $root/sys/fs/cgroup/$controller
        done
        ;;
esac
HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin chroot $root /bin/sh /out/run.sh \
    >$root/out/log 2>&1
sync
# The list is complete. After a panic, this file is missing.
touch $root/out/complete
# Makes QEMU exit with status 33, where it has such a device.
printf '\020' | dd of=$root/dev/port bs=1 seek=244 2>/dev/null
poweroff -f
