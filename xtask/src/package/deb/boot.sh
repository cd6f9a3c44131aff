# Boots a system with systemd as process 1, and waits until its trial is over. In mount and process namespaces of its own:
# what is mounted and started here ends with them.
#   boot.sh ROOT
set -eu
root=$1
# Files that systemd-nspawn keeps of containers.
mount -t tmpfs tmpfs /run
# A control group of its own, in whichever hierarchy systemd uses; the caller removes it.
for hierarchy in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
    if [ -f "$hierarchy/cgroup.procs" ]; then
        group=$hierarchy/mountie-package-trial
        mkdir -p "$group"
        echo $$ >"$group/cgroup.procs"
        # Whatever is made at the root of the hierarchy is made in it.
        mount --bind "$group" "$hierarchy"
        break
    fi
done
SYSTEMD_SECCOMP=0 SYSTEMD_NSPAWN_API_VFS_WRITABLE=1
export SYSTEMD_SECCOMP SYSTEMD_NSPAWN_API_VFS_WRITABLE
if [ -d /sys/fs/cgroup/systemd ]; then export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=0; fi
exec unshare --cgroup systemd-nspawn --quiet --register=no --keep-unit --capability=all --private-network --bind=/dev/fuse \
    --console=pipe --directory="$root" --boot
