# Runs the image beside a volume that breaks, as the chart runs it: once privileged, where the volume is repaired; once
# with a network of its own, where it must not be, whatever the configuration says; and once with the capabilities that
# the chart names, with which the chart only watches. In mount and process namespaces of its own, which stand for a node.
#   trial.sh BUNDLE NODE VALUES
set -eu
bundle=$1 node=$2 values=$3
volume=$node/volume
mkdir -p "$node/data" "$node/config" "$node/runc" "$volume"
mount -t tmpfs tmpfs /run
mkdir -p /run/mountie
rm -rf "$node/state" && mkdir -p "$node/state"
echo content >"$node/data/file"

die() { echo "trial: $*" >&2; tail -n 30 "$node/log" >&2; exit 1; }
await() {
    what=$1; shift
    for _ in $(seq 600); do if "$@" >/dev/null 2>&1; then return 0; fi; sleep 0.2; done
    die "waited in vain: $what"
}
agent() { runc --root "$node/runc" exec trial /usr/bin/mountie "$@"; }
is_state() { agent status -o json | tr -d ' \n' | grep -q "\"state\":\"$1\""; }
have_begun() { answer=$(agent doctor -o json) || [ $? = 77 ] && ! echo "$answer" | grep -q '"not started"'; }
configure() {
    cat >"$node/config/config.toml" <<TOML
[agent]
listen = ""
[defaults]
interval = "1s"
mode = "$1"
[discovery]
enabled = false
[[volume]]
name = "data"
mountpoint = "$volume"
source = "$node/data"
fstype = "fuse.bindfs"
TOML
}
end() {
    runc --root "$node/runc" kill trial TERM 2>/dev/null || true
    await "the agent has ended" sh -c "! runc --root '$node/runc' kill trial 0"
    # A daemon that a repair has started is in the container's control group.
    umount -l "$volume" 2>/dev/null || true
    await "the control group is empty" sh -c "! grep -qs . /sys/fs/cgroup/mountie-image-trial/cgroup.procs /sys/fs/cgroup/*/mountie-image-trial/cgroup.procs"
    runc --root "$node/runc" delete --force trial
}
trap 'runc --root "$node/runc" delete --force trial >/dev/null 2>&1 || true; umount -l "$volume" 2>/dev/null || true' EXIT

# What the chart asks of a container runtime, in the runtime's words.
specify() {
    python3 - "$bundle" "$node" "$values" "$1" <<'PY'
import json, re, sys
bundle, node, values, kind = sys.argv[1:]
path = f"{bundle}/config.json"
spec = json.load(open(path))
listed = re.search(r"^capabilities:\n((?:  - \w+\n)+)", open(values).read(), re.M).group(1)
held = open("/proc/self/status").read()
held = int(re.search(r"CapBnd:\s*(\w+)", held).group(1), 16)
names = """CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN
SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE""".split()
wanted = names if kind != "confined" else re.findall(r"- (\w+)", listed)
# A machine that is itself confined cannot give what it does not have.
caps = ["CAP_" + name for bit, name in enumerate(names) if name in wanted and held >> bit & 1]
process = spec["process"]
process["terminal"] = False
process["capabilities"] = {key: caps for key in ("bounding", "effective", "permitted")}
process.pop("apparmorProfile", None)
spec["root"]["readonly"] = True
linux = spec["linux"]
linux.pop("seccomp", None)
own = ["network"] if kind == "apart" else []
linux["namespaces"] = [{"type": name} for name in ["mount", "ipc", "uts", *own]]
linux["cgroupsPath"] = "/mountie-image-trial"
linux["rootfsPropagation"] = "slave"
if kind != "confined":
    linux["maskedPaths"], linux["readonlyPaths"] = [], []
    linux["resources"] = {"devices": [{"allow": True, "access": "rwm"}]}
bind = lambda source, to, *options: {
    "type": "bind", "source": source, "destination": to, "options": ["rbind", *options]}
own = ("/run/mountie", "/var/lib/mountie", "/etc/mountie")
spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] not in own] + [
    bind("/run/mountie", own[0], "rslave", "rw"), bind(f"{node}/state", own[1], "rprivate", "rw"),
    bind(f"{node}/config", own[2], "rprivate", "ro")]
json.dump(spec, open(path, "w"))
PY
}

told=""
for kind in privileged apart confined; do
    umount -l "$volume" 2>/dev/null || true
    bindfs --no-allow-other "$node/data" "$volume"
    configure observe
    specify "$kind"
    # What an agent has on this node without a container.
    alone=$("$bundle/rootfs/usr/bin/mountie" doctor -o json) || [ $? = 77 ] || die "doctor outside of the image"
    runc --root "$node/runc" run --detach --bundle "$bundle" --pid-file "$node/pid" trial >"$node/log" 2>&1 </dev/null ||
        die "$kind: it does not start"
    await "$kind: the volume is healthy" is_state healthy
    await "$kind: every source has begun" have_begun
    doctor=$(agent doctor -o json) || [ $? = 77 ] || die "$kind: doctor"
    down=$(python3 -c '
import json, sys
alone, inside = ({s["name"] for s in json.loads(text)["sources"] if s["state"] == "running"} for text in sys.argv[1:])
print(*sorted(alone - inside))' "$alone" "$doctor")
    [ "$kind" = confined ] || [ -z "$down" ] || die "$kind: the container lacks what the node has: $down"
    pkill -KILL -x bindfs
    await "$kind: the volume is sick" is_state degraded
    if agent status >/dev/null; then die "$kind: status ends with 0 beside a sick volume"; fi
    seen=sick
    if [ "$kind" = privileged ]; then
        configure act
        runc --root "$node/runc" kill trial HUP
        await "$kind: the volume is repaired" is_state healthy
        [ "$(cat "$volume/file")" = content ] || die "$kind: the volume is not what it was"
        seen="sick and repaired"
    elif [ "$kind" = apart ]; then
        configure act
        runc --root "$node/runc" kill trial HUP
        await "$kind: a repair is due" grep -q "not carried out in mode dry-run" "$node/log"
        agent doctor | grep -q "repairs need the network" || die "$kind: doctor does not say why nothing is repaired"
        is_state degraded || die "$kind: it is no longer sick"
        if [ -e "$volume/file" ]; then die "$kind: a mount was made in the container's network"; fi
        seen="sick and left alone"
    fi
    peak=$(sed -n 's/^VmHWM:\s*\([0-9]*\) kB/\1/p' "/proc/$(cat "$node/pid")/status")
    end
    told="$told$kind: $seen, $((peak / 1024)) MiB at most${down:+, without: $down}; "
done
echo "${told%; }"
