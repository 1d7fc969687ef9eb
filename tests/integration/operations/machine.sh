# Become a machine: a copy of this one that is thrown away, with users, units, ports and processes of its own.
# $1 is an empty directory, $2 an empty control group. The root file system is that of this machine, below a layer in memory that takes all writes;
# systemd is process 1. Needs root.
set -euo pipefail

if [ "$2" != '' ]; then
    # systemd manages the control group of which it is the only process.
    echo $$ >"$2/cgroup.procs"
    exec unshare --mount --net --pid --uts --ipc --cgroup --fork --kill-child --propagation private bash "$0" "$1" ''
fi
mount -t tmpfs tmpfs "$1"
mkdir "$1/changes" "$1/work"

root=$1/root
mkdir "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/changes,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
# Settings of the kernel are shared with this machine.
mount --bind "$root/proc/sys" "$root/proc/sys"
mount -o remount,bind,ro "$root/proc/sys"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/dev"
for device in null zero full random urandom tty; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -sf /dev/null "$root/etc/systemd/system/systemd-udevd.service"
ip link set lo up
hostname placement-test
echo '127.0.0.1 localhost placement-test cloud.example.org' >"$root/etc/hosts"
cd "$root"
mkdir -p old
pivot_root . old
umount -l old
exec env -i container=other PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=basic.target
