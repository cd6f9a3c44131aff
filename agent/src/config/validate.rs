//! From the shape of the file to a `Config`: defaults, and the rules that need more than one key.
//!
//! A deadline longer than the interval is allowed: at most one probe is outstanding per superblock, so the
//! next one waits.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use agent_core::path::BytePath;
use agent_core::policy::Policy;
use agent_core::volume::{Discovery, HookAddress, HookWay, Mode, ProbeUser, Selector, VolumeSpec, Watch};

use super::error::{Place, Problem};
use super::raw::{RawAgent, RawConfig, RawDiscovery, RawProbe, RawSelector, RawVolume, RawWatch};
use super::reader::{Document, Given};
use super::{AgentConfig, Config, KernelConfig, show, volume};

/// Fills in defaults and notes what is wrong. The result counts only when nothing was noted.
pub(super) fn config(raw: RawConfig, document: &Document<'_>) -> Config {
    let agent = agent(raw.agent);
    let defaults = watch(raw.defaults, &Watch::default(), document);
    let discovery = discovery(raw.discovery, document);
    let stage_root = agent.stage_root();
    let mut volumes = Vec::new();
    let mut hooks = Vec::new();
    let mut seen = Seen::default();
    for raw in raw.volumes {
        seen.check(&raw, document);
        let place = mountpoint_place(&raw);
        let hook_place = hook_place(&raw);
        let Some(spec) = volume::spec(raw, &defaults, document) else { continue };
        check_own_places(&spec, &place, &agent, document);
        hooks.extend(hook_path(&spec).zip(hook_place));
        volumes.push(spec);
    }
    check_hooks(&hooks, &volumes, document);
    let default = KernelConfig::default();
    let kernel = KernelConfig {
        family: raw.family.value().unwrap_or(default.family),
        btf: raw.btf.value().map_or(default.btf, |path| path.0),
    };
    let thresholds = Box::default();
    Config {
        agent,
        kernel,
        policy: Policy { volumes, discovery, defaults, stage_root: bytes(&stage_root), node: 0, thresholds },
    }
}

/// `[agent]` with its defaults.
pub(super) fn agent(raw: RawAgent) -> AgentConfig {
    let default = AgentConfig::default();
    AgentConfig {
        listen: raw.listen.value().map_or(default.listen, |listen| listen.0),
        socket: raw.socket.value().map_or(default.socket, |path| path.0),
        docker_plugin: raw.docker_plugin.value().map_or(default.docker_plugin, |socket| socket.0),
        state_dir: raw.state_dir.value().map_or(default.state_dir, |path| path.0),
        mount_namespace: raw.mount_namespace.value().unwrap_or(default.mount_namespace),
        log_format: raw.log_format.value().unwrap_or(default.log_format),
    }
}

/// Timing and mode: what is given here, else what was given above.
pub(super) fn watch(raw: RawWatch, above: &Watch, document: &Document<'_>) -> Watch {
    Watch {
        mode: raw.mode.value().unwrap_or(above.mode),
        interval: raw.interval.value().map_or(above.interval, |interval| interval.0),
        deadline: raw.deadline.value().map_or(above.deadline, |deadline| deadline.0),
        failures: raw.failures.value().map_or(above.failures, |failures| failures.0),
        probe_as: match raw.probe {
            Given::Is(raw, _) => probe_user(raw, document).map(Arc::new),
            Given::Absent(_) | Given::Broken => above.probe_as.clone(),
        },
    }
}

/// The user as whom probes look. An empty table means: as the agent itself, whatever the defaults say.
fn probe_user(raw: RawProbe, document: &Document<'_>) -> Option<ProbeUser> {
    if raw.uid.missing().is_some() && raw.gid.missing().is_some() && raw.groups.missing().is_some() {
        return None;
    }
    for (key, given) in [("uid", &raw.uid), ("gid", &raw.gid)] {
        if let Some(place) = given.missing() {
            let why =
                format!("probing as a user needs uid and gid; write {key} as a number, as `id` prints it");
            document.report(place.clone(), Problem::Missing { why });
        }
    }
    let groups = raw.groups.value().unwrap_or_default();
    Some(ProbeUser {
        uid: raw.uid.value()?.0,
        gid: raw.gid.value()?.0,
        groups: groups.into_iter().map(|group| group.0).collect(),
    })
}

fn discovery(raw: RawDiscovery, document: &Document<'_>) -> Discovery {
    let selectors = |raw: Vec<RawSelector>| raw.into_iter().map(|raw| selector(raw, document)).collect();
    Discovery {
        enabled: raw.enabled.value().unwrap_or(Discovery::default().enabled),
        include: selectors(raw.include),
        exclude: selectors(raw.exclude),
    }
}

fn selector(raw: RawSelector, document: &Document<'_>) -> Selector {
    let nothing = raw.fstype.missing().is_some()
        && raw.mountpoint.missing().is_some()
        && raw.source.missing().is_some();
    if nothing {
        let why = "a selector without a key would match every mount; write fstype, mountpoint or source";
        document.report(raw.place, Problem::Missing { why: why.to_owned() });
    }
    Selector {
        fstype: raw.fstype.value().map(|glob| glob.0),
        mountpoint: raw.mountpoint.value().map(|glob| glob.0),
        source: raw.source.value().map(|glob| glob.0),
    }
}

/// Names and mount points that were met, with the key that had them first.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, Place>,
    mountpoints: BTreeMap<BytePath, Place>,
}

impl Seen {
    fn check(&mut self, raw: &RawVolume, document: &Document<'_>) {
        if let Given::Is(name, place) = &raw.name {
            first(&mut self.names, name.0.clone(), place, show::text(&name.0), document);
        }
        if let Given::Is(path, place) = &raw.mountpoint {
            first(&mut self.mountpoints, path.0.clone(), place, format!("\"{}\"", path.0), document);
        }
    }
}

fn first<K: Ord>(
    seen: &mut BTreeMap<K, Place>,
    key: K,
    place: &Place,
    found: String,
    document: &Document<'_>,
) {
    if let Some(first) = seen.get(&key) {
        let first = first.key().to_owned();
        document.report(place.clone(), Problem::Duplicate { found, first });
    } else {
        seen.insert(key, place.clone());
    }
}

fn mountpoint_place(raw: &RawVolume) -> Place {
    match &raw.mountpoint {
        Given::Is(_, place) | Given::Absent(place) => place.clone(),
        Given::Broken => Place::new("", None),
    }
}

fn hook_place(raw: &RawVolume) -> Option<Place> {
    match &raw.repair.hook {
        Given::Is(_, place) => Some(place.clone()),
        Given::Absent(_) | Given::Broken => None,
    }
}

/// The program or socket that is asked. What is looked up lies where the system has its programs.
fn hook_path(spec: &VolumeSpec) -> Option<BytePath> {
    let path = match &spec.repair.hook.as_ref()?.how {
        HookWay::Exec(argv) => argv.first().filter(|program| program.starts_with('/'))?,
        HookWay::Post(HookAddress::Unix(socket)) => socket,
        HookWay::Post(HookAddress::Http { .. }) => return None,
    };
    Some(BytePath::new(path.as_bytes()))
}

/// A hook that lies on a volume hangs or vanishes with it, just when somebody is to be asked. Everything lies on the
/// root directory.
fn check_hooks(hooks: &[(BytePath, Place)], volumes: &[VolumeSpec], document: &Document<'_>) {
    for (path, place) in hooks {
        let on =
            |volume: &&VolumeSpec| volume.mountpoint.as_bytes() != b"/" && path.is_within(&volume.mountpoint);
        if let Some(volume) = volumes.iter().find(on) {
            let why = format!(
                "which lies on the volume at {}; a hook must answer while volumes do not: move it elsewhere",
                volume.mountpoint
            );
            document.report(place.clone(), Problem::Conflict { found: format!("\"{path}\""), why });
        }
    }
}

/// The agent cannot repair what it stands on, and its stage is not for volumes.
fn check_own_places(spec: &VolumeSpec, place: &Place, agent: &AgentConfig, document: &Document<'_>) {
    let found = || format!("\"{}\"", spec.mountpoint);
    let stage = bytes(&agent.stage_root());
    if spec.mountpoint.is_within(&stage) {
        let why =
            format!("which lies in {stage}, where the agent makes its own mounts; choose another place");
        document.report(place.clone(), Problem::Conflict { found: found(), why });
        return;
    }
    let repairs = matches!(spec.watch.mode, Mode::Act | Mode::DryRun);
    if !repairs || spec.mountpoint.as_bytes() == b"/" {
        return;
    }
    let plugin = agent.docker_plugin.as_deref().map(|path| ("agent.docker_plugin", path));
    let own = [("agent.state_dir", agent.state_dir.as_path()), ("agent.socket", agent.socket.as_path())];
    for (key, path) in own.into_iter().chain(plugin) {
        if bytes(path).is_within(&spec.mountpoint) {
            let why = format!(
                "which holds {key} ({}); the agent cannot repair what it stands on: move {key}, or use mode = \"observe\"",
                path.display()
            );
            document.report(place.clone(), Problem::Conflict { found: found(), why });
        }
    }
}

fn bytes(path: &Path) -> BytePath {
    use std::os::unix::ffi::OsStrExt;
    BytePath::new(path.as_os_str().as_bytes())
}
