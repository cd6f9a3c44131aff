//! The shape of the file: every key, none with a default, no rules that need a second key.

use agent_core::volume::Mode;

use super::error::Place;
use super::reader::{Given, Reader};
use super::scalar::{
    AccountId, Deadline, Failures, HelperTimeout, HookTimeout, Interval, Listen, MaxAttempts, MethodName,
};
use super::text::{
    Argument, Content, FsType, Fsid, Glob, HookUrl, InnerPath, MountOption, MountPoint, OwnPath, PathGlob,
    PluginSocket, SourceText, Unit, Uuid, VolumeName,
};
use super::{Family, LogFormat, MountNamespace};

/// The whole file.
pub(super) struct RawConfig {
    pub(super) agent: RawAgent,
    pub(super) family: Given<Family>,
    pub(super) btf: Given<OwnPath>,
    pub(super) defaults: RawWatch,
    pub(super) discovery: RawDiscovery,
    pub(super) volumes: Vec<RawVolume>,
}

impl RawConfig {
    pub(super) fn read(mut root: Reader<'_, '_>) -> Self {
        let agent = RawAgent::read(root.section("agent"));
        let mut kernel = root.section("kernel");
        let family = kernel.scalar("family");
        let btf = kernel.scalar("btf");
        kernel.finish();
        let mut table = root.section("defaults");
        let defaults = RawWatch::read(&mut table);
        table.finish();
        let discovery = RawDiscovery::read(root.section("discovery"));
        let volumes = root.tables("volume", "[[volume]]").into_iter().map(RawVolume::read).collect();
        root.finish();
        Self { agent, family, btf, defaults, discovery, volumes }
    }
}

/// `[agent]`
pub(super) struct RawAgent {
    pub(super) listen: Given<Listen>,
    pub(super) socket: Given<OwnPath>,
    pub(super) docker_plugin: Given<PluginSocket>,
    pub(super) state_dir: Given<OwnPath>,
    pub(super) mount_namespace: Given<MountNamespace>,
    pub(super) log_format: Given<LogFormat>,
}

impl RawAgent {
    pub(super) fn read(mut table: Reader<'_, '_>) -> Self {
        let raw = Self {
            listen: table.scalar("listen"),
            socket: table.scalar("socket"),
            docker_plugin: table.scalar("docker_plugin"),
            state_dir: table.scalar("state_dir"),
            mount_namespace: table.scalar("mount_namespace"),
            log_format: table.scalar("log_format"),
        };
        table.finish();
        raw
    }
}

/// The keys of `[defaults]`, each of which may be repeated in `[[volume]]`.
pub(super) struct RawWatch {
    pub(super) mode: Given<Mode>,
    pub(super) interval: Given<Interval>,
    pub(super) deadline: Given<Deadline>,
    pub(super) failures: Given<Failures>,
    pub(super) probe: Given<RawProbe>,
}

impl RawWatch {
    fn read(table: &mut Reader<'_, '_>) -> Self {
        Self {
            mode: table.scalar("mode"),
            interval: table.scalar("interval"),
            deadline: table.scalar("deadline"),
            failures: table.scalar("failures"),
            probe: RawProbe::read(table),
        }
    }
}

/// `probe = { … }`
pub(super) struct RawProbe {
    pub(super) uid: Given<AccountId>,
    pub(super) gid: Given<AccountId>,
    pub(super) groups: Given<Vec<AccountId>>,
}

impl RawProbe {
    fn read(above: &mut Reader<'_, '_>) -> Given<Self> {
        let (mut table, place) = match above
            .table("probe", "a table: { uid = 1000, gid = 1000, groups = [27] }; groups may be left out")
        {
            Given::Is(table, place) => (table, place),
            Given::Absent(place) => return Given::Absent(place),
            Given::Broken => return Given::Broken,
        };
        let raw =
            Self { uid: table.scalar("uid"), gid: table.scalar("gid"), groups: table.open_scalars("groups") };
        table.finish();
        Given::Is(raw, place)
    }
}

/// `[discovery]`
pub(super) struct RawDiscovery {
    pub(super) enabled: Given<bool>,
    pub(super) include: Vec<RawSelector>,
    pub(super) exclude: Vec<RawSelector>,
}

const SELECTOR: &str = "{ fstype = \"nfs*\" }, { mountpoint = \"/srv/**\" } or { source = \"filer1:*\" }";

impl RawDiscovery {
    fn read(mut table: Reader<'_, '_>) -> Self {
        let raw = Self {
            enabled: table.scalar("enabled"),
            include: table.tables("include", SELECTOR).into_iter().map(RawSelector::read).collect(),
            exclude: table.tables("exclude", SELECTOR).into_iter().map(RawSelector::read).collect(),
        };
        table.finish();
        raw
    }
}

/// One line of `include` or `exclude`.
pub(super) struct RawSelector {
    pub(super) place: Place,
    pub(super) fstype: Given<Glob>,
    pub(super) mountpoint: Given<PathGlob>,
    pub(super) source: Given<Glob>,
}

impl RawSelector {
    fn read(mut table: Reader<'_, '_>) -> Self {
        let raw = Self {
            place: table.place().clone(),
            fstype: table.scalar("fstype"),
            mountpoint: table.scalar("mountpoint"),
            source: table.scalar("source"),
        };
        table.finish();
        raw
    }
}

/// `[[volume]]`
pub(super) struct RawVolume {
    pub(super) name: Given<VolumeName>,
    pub(super) mountpoint: Given<MountPoint>,
    pub(super) source: Given<SourceText>,
    pub(super) fstype: Given<FsType>,
    pub(super) options: Given<Vec<MountOption>>,
    pub(super) watch: RawWatch,
    pub(super) sentinel: Given<RawSentinel>,
    pub(super) write_probe: Given<bool>,
    pub(super) uuid: Given<Uuid>,
    pub(super) fsid: Given<Fsid>,
    pub(super) repair: RawRepair,
}

impl RawVolume {
    fn read(mut table: Reader<'_, '_>) -> Self {
        let name = table.scalar("name");
        let mountpoint = table.scalar("mountpoint");
        let source = table.open_scalar("source");
        let fstype = table.scalar("fstype");
        let options = table.open_scalars("options");
        let watch = RawWatch::read(&mut table);
        let sentinel = match table.table("sentinel", "a table: { path = \".mountie\", content = \"…\" }") {
            Given::Is(sentinel, place) => Given::Is(RawSentinel::read(sentinel), place),
            Given::Absent(place) => Given::Absent(place),
            Given::Broken => Given::Broken,
        };
        let write_probe = table.scalar("write_probe");
        let mut identity = table.section("identity");
        let (uuid, fsid) = (identity.scalar("uuid"), identity.scalar("fsid"));
        identity.finish();
        let repair = RawRepair::read(table.section("repair"));
        table.finish();
        Self { name, mountpoint, source, fstype, options, watch, sentinel, write_probe, uuid, fsid, repair }
    }
}

/// `sentinel = { … }`
pub(super) struct RawSentinel {
    pub(super) path: Given<InnerPath>,
    pub(super) content: Given<Content>,
}

impl RawSentinel {
    fn read(mut table: Reader<'_, '_>) -> Self {
        let raw = Self { path: table.scalar("path"), content: table.scalar("content") };
        table.finish();
        raw
    }
}

/// `[volume.repair]`
pub(super) struct RawRepair {
    pub(super) method: Given<MethodName>,
    pub(super) command: Given<Vec<Argument>>,
    pub(super) unit: Given<Unit>,
    pub(super) environment_file: Given<OwnPath>,
    pub(super) heal_below: Given<bool>,
    pub(super) timeout: Given<HelperTimeout>,
    pub(super) max_attempts: Given<MaxAttempts>,
    pub(super) hook: Given<RawHook>,
    pub(super) swap_consumers: Given<bool>,
}

impl RawRepair {
    fn read(mut table: Reader<'_, '_>) -> Self {
        let raw = Self {
            method: table.scalar("method"),
            command: table.open_scalars("command"),
            unit: table.scalar("unit"),
            environment_file: table.open_scalar("environment_file"),
            heal_below: table.scalar("heal_below"),
            timeout: table.scalar("timeout"),
            max_attempts: table.scalar("max_attempts"),
            hook: RawHook::read(&mut table),
            swap_consumers: table.scalar("swap_consumers"),
        };
        // Read so that they are known and checked; what asks for more than `false` has been reported.
        table.scalar::<bool>("delete_pods");
        table.finish();
        raw
    }
}

/// `hook = { … }`
pub(super) struct RawHook {
    pub(super) place: Place,
    pub(super) exec: Given<Vec<Argument>>,
    pub(super) url: Given<HookUrl>,
    pub(super) timeout: Given<HookTimeout>,
}

const HOOK: &str = "a table: { exec = [\"/etc/mountie/ask\"] } or { url = \"http://127.0.0.1:8080/ask\" }";

impl RawHook {
    fn read(above: &mut Reader<'_, '_>) -> Given<Self> {
        let (mut table, place) = match above.table("hook", HOOK) {
            Given::Is(table, place) => (table, place),
            Given::Absent(place) => return Given::Absent(place),
            Given::Broken => return Given::Broken,
        };
        let raw = Self {
            place: place.clone(),
            exec: table.open_scalars("exec"),
            url: table.open_scalar("url"),
            timeout: table.scalar("timeout"),
        };
        table.finish();
        Given::Is(raw, place)
    }
}
