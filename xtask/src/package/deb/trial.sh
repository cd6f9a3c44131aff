#!/bin/sh
# The life of the package in a system with systemd, from an installation to a purge. What is wrong is said in one line,
# and ends it. Run by trial.service; the host reads /trial/log and /trial/result.
set -eu
exec >/trial/log 2>&1
export DEBIAN_FRONTEND=noninteractive
volume=/mnt/volume
trap 'code=$?; [ $code = 0 ] || { echo "trial: ended with $code"; systemctl --no-pager status mountie || true
      journalctl --no-pager -n 60 -u mountie || true; }
      echo $code >/trial/result; systemctl --force poweroff' EXIT

die() { echo "trial: $*"; exit 1; }
# Waits for a condition, as long as a busy machine may need.
await() {
    what=$1; shift
    for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.2; done
    die "waited in vain: $what"
}
property() { systemctl show --property "$1" --value mountie; }
is_state() { mountie status -o json | tr -d ' \n' | grep -q "\"state\":\"$1\""; }
is_sick() { mountie status >/dev/null 2>&1; [ $? = 1 ]; }
is_status() { property StatusText | grep -q "$1"; }
is_other() { now=$(property MainPID); [ "$now" != 0 ] && [ "$now" != "$1" ] && [ "$(property ActiveState)" = active ]; }
# What `doctor` says of each source, one a line.
sources() { mountie doctor -o json | tr -d ' \n' | grep -o '{"name":"[a-z_]*","state":"[a-z_ ]*"' | sort; }
running() { sources | sed -n 's/^{"name":"\(.*\)","state":"running"$/\1/p'; }
have_begun() { running >/trial/in-unit; ! comm -23 /trial/alone /trial/in-unit | grep -q .; }
is_mounted() { grep -q " $volume " /proc/self/mountinfo; }
files() { find / -xdev \( -path /trial -o -path /var/log -o -path /tmp -o -path /var/cache -o -path /root \) -prune -o -print | sort; }

# What a host without CAP_SYS_RESOURCE cannot give; nothing of it is the unit's own limit of a capability.
if ! ( echo -900 >/proc/self/oom_score_adj ) 2>/dev/null; then
    mkdir -p /run/systemd/system/mountie.service.d
    printf '[Service]\nOOMScoreAdjust=0\nLimitNOFILE=4096\n' >/run/systemd/system/mountie.service.d/host.conf
fi

files >/trial/before
echo "── install"
dpkg --install /trial/first.deb
[ "$(property ActiveState)" = active ] || die "it does not run after its installation"
[ "$(systemctl is-enabled mountie)" = enabled ] || die "it is not enabled"
[ "$(property WatchdogUSec)" = 30s ] || die "the watchdog is off"
await "the first look" is_status "healthy"
mountie doctor || [ $? = 77 ] || die "doctor: $?"
[ "$(stat -c %a /var/lib/mountie)" = 700 ] || die "the state is open to others"

echo "── the unit's limits hold, and take nothing from the agent"
pid=$(property MainPID)
[ "$(readlink "/proc/$pid/ns/mnt")" = "$(readlink /proc/1/ns/mnt)" ] || die "the unit has a mount namespace of its own"
[ "$(readlink "/proc/$pid/ns/net")" = "$(readlink /proc/1/ns/net)" ] || die "the unit has a network of its own"
grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$pid/status" || die "new privileges are not refused"
if [ -e /proc/sys/kernel/seccomp/actions_avail ]; then
    grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" || die "no system call is refused"
fi
# What an agent has on this host without the unit's limits, it has within them.
systemctl stop mountie
running >/trial/alone
for source in census consumers; do
    grep -qx "$source" /trial/alone || die "$source does not run, even without the unit's limits"
done
systemctl start mountie
await "every source runs that runs without the unit's limits" have_begun
cat /trial/in-unit

echo "── a volume that is named, and repaired under the unit's limits"
mkdir -p /srv/data "$volume"
echo content >/srv/data/file
cat >/etc/mountie/config.toml <<TOML
[defaults]
interval = "1s"
[discovery]
enabled = false
[[volume]]
name = "data"
mountpoint = "$volume"
source = "/srv/data"
fstype = "fuse.bindfs"
mode = "observe"
TOML
bindfs --no-allow-other /srv/data "$volume"
mountie check-config /etc/mountie/config.toml
systemctl reload mountie
await "the volume is healthy" is_state healthy
daemon=$(pgrep -x bindfs)
kill -KILL "$daemon"
await "the volume is sick" is_sick
await "systemd hears of it" is_status "degraded (data disconnected)"
mountie status || true
sed -i 's/"observe"/"act"/' /etc/mountie/config.toml
systemctl reload mountie
await "the volume is repaired" is_state healthy
[ "$(cat $volume/file)" = content ] || die "the volume is not what it was"
repaired=$(pgrep -x bindfs)
[ "$(cat "/proc/$repaired/oom_score_adj")" -ge 0 ] || die "the daemon is spared when memory runs out, as the agent is"
if tr '\0' '\n' <"/proc/$repaired/environ" | grep -q NOTIFY_SOCKET; then die "the daemon has the agent's environment"; fi
mountie describe data

echo "── a loop that stands still is ended, and the volume lives on"
first=$(property MainPID)
mkdir -p /run/systemd/system/mountie.service.d
printf '[Service]\nWatchdogSec=2\n' >/run/systemd/system/mountie.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart mountie
await "another process" is_other "$first"
second=$(property MainPID)
kill -STOP "$second"
await "systemd has started it anew" is_other "$second"
[ "$(pgrep -x bindfs)" = "$repaired" ] || die "the daemon did not outlive the agent"
rm /run/systemd/system/mountie.service.d/watchdog.conf
systemctl daemon-reload
await "the volume is healthy" is_state healthy

echo "── upgrade"
third=$(property MainPID)
sum=$(sha256sum /etc/mountie/config.toml)
dpkg --install --force-confold /trial/second.deb
[ "$(sha256sum /etc/mountie/config.toml)" = "$sum" ] || die "the configuration was written over"
is_other "$third" || die "the agent was not started anew"
[ "$(pgrep -x bindfs)" = "$repaired" ] || die "the daemon did not outlive the upgrade"
await "the volume is healthy" is_state healthy

echo "── remove"
mountie pause data --reason "its mount is taken away"
umount "$volume"
await "the daemon has ended" sh -c '! pgrep -x bindfs'
dpkg --remove mountie
if pgrep -x bindfs || is_mounted; then die "the volume that was taken away is there again"; fi
if pgrep -x mountie; then die "a process is left"; fi
[ ! -e /usr/bin/mountie ] || die "the program is left"
[ -f /etc/mountie/config.toml ] || die "the configuration is gone before a purge"
[ -d /var/lib/mountie ] || die "the state is gone before a purge"
[ ! -e /run/mountie ] || die "/run/mountie is left: $(ls -R /run/mountie)"

echo "── purge"
mkdir -p /run/mountie/stage/1
dpkg --purge mountie
[ ! -e /run/mountie ] || die "a stage is left"
[ -z "$(find /etc/systemd /var/lib/systemd -name '*mountie*')" ] || die "systemd still knows it"
rm -r /srv/data "$volume"
files >/trial/after
diff /trial/before /trial/after >/trial/left || true
if grep -i '^> .*mountie' /trial/left; then die "these files are left"; fi
cat /trial/left
echo "── nothing is left"
