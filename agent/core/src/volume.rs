//! What the operator wants: which volumes there should be, and how each is watched and repaired.

use alloc::{string::String, sync::Arc, vec::Vec};
use core::time::Duration;

use crate::id::VolumeId;
use crate::path::BytePath;

/// How much the agent may do for a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Mode {
    /// Neither probed nor judged.
    Off,
    /// Watched and reported.
    #[default]
    Observe,
    /// Watched; plans are made and reported, never carried out.
    DryRun,
    /// Watched and repaired.
    Act,
}

/// Timing and permissions of one volume. Every field has passed validation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Watch {
    /// What the agent may do.
    pub mode: Mode,
    /// Time between probes of a healthy volume.
    pub interval: Duration,
    /// A probe that takes longer is hung.
    pub deadline: Duration,
    /// Consecutive failed probes before `Degraded` without kernel evidence. At least 1.
    pub failures: u32,
    /// As whom probes look; as the agent itself when absent.
    pub probe_as: Option<Arc<ProbeUser>>,
}

/// A user of this node, as whom probes look: where a server or a daemon refuses root what it grants to others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProbeUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Further group ids.
    pub groups: Vec<u32>,
}

impl Default for Watch {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            interval: Duration::from_secs(10),
            deadline: Duration::from_secs(3),
            failures: 2,
            probe_as: None,
        }
    }
}

/// The small file that a probe reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sentinel {
    /// Path relative to the volume's root. Never absolute, never with `..`.
    pub path: BytePath,
    /// What it must contain; `None` when any content will do.
    pub content: Option<Vec<u8>>,
}

/// A volume named in the configuration. Its absence is a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeSpec {
    /// The operator's name; unique.
    pub id: VolumeId,
    /// Where it must be mounted, in the host's namespace.
    pub mountpoint: BytePath,
    /// What must be mounted. `None`: whatever is there.
    pub source: Option<Vec<u8>>,
    /// The type it must have. `nfs` also accepts `nfs4` and the other way round.
    pub fstype: Option<String>,
    /// Mount options in order. Names of credentials files may stand here, never secrets.
    pub options: Vec<String>,
    /// Timing and mode.
    pub watch: Watch,
    /// The sentinel, if configured.
    pub sentinel: Option<Sentinel>,
    /// Whether a probe may write (and remove) a file of its own.
    pub write_probe: bool,
    /// What identifies the file system, when configured.
    pub identity: Identity,
    /// How it is repaired.
    pub repair: Repair,
}

impl VolumeSpec {
    /// Whether the specification wants the volume read-only.
    #[must_use]
    pub fn wants_readonly(&self) -> bool {
        self.options
            .iter()
            .rfind(|option| *option == "ro" || *option == "rw")
            .is_some_and(|option| option == "ro")
    }
}

/// What must be equal before and after a repair, as far as it is known.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// UUID of a block file system, as `blkid` prints it.
    pub uuid: Option<String>,
    /// `f_fsid` of `statfs`, as 16 hexadecimal digits.
    pub fsid: Option<String>,
}

impl Identity {
    /// Whether something that is known of both is not the same.
    #[must_use]
    pub fn differs(&self, other: &Self) -> bool {
        let differ = |one: &Option<String>, other: &Option<String>| {
            one.as_ref().zip(other.as_ref()).is_some_and(|(one, other)| !one.eq_ignore_ascii_case(other))
        };
        differ(&self.uuid, &other.uuid) || differ(&self.fsid, &other.fsid)
    }
}

/// How a volume is repaired, with limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// What makes the new mount.
    pub method: Method,
    /// A helper that takes longer is killed, with its whole process group.
    pub timeout: Duration,
    /// Attempts per hour; then `Quarantined`.
    pub max_attempts: u32,
    /// A file of the agent's own namespace with variables for the helper. It is read by the child that starts the
    /// helper, and by nobody else.
    pub environment_file: Option<BytePath>,
    /// Whether what lies below the mount is healed first: a hung FUSE connection, the unit of a daemon.
    pub heal_below: bool,
    /// Who is asked before each attempt.
    pub hook: Option<Hook>,
    /// What of its consumers is repaired with it.
    pub consumers: Reach,
}

/// Which other mounts of a volume's superblock are repaired with the volume: binds, and those of running containers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Reach {
    /// None.
    Nothing,
    /// All but those that the kubelet made, which it looks after itself.
    #[default]
    Unowned,
    /// All.
    All,
}

/// Who is asked before a repair: what only the operator knows (maintenance, another node that writes, a better way).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hook {
    /// How it is reached.
    pub how: HookWay,
    /// An answer that takes longer is none.
    pub timeout: Duration,
}

/// How a hook is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookWay {
    /// A program and its arguments; no shell. The evidence is on its standard input, the answer on its standard output.
    Exec(Vec<String>),
    /// An address to which the evidence is posted.
    Post(HookAddress),
}

/// Where a hook listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookAddress {
    /// `http://AUTHORITY/PATH`
    Http {
        /// Host and port.
        authority: String,
        /// Path and query.
        path: String,
    },
    /// `unix:PATH`
    Unix(String),
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            method: Method::Mount,
            timeout: Duration::from_secs(60),
            max_attempts: 5,
            environment_file: None,
            heal_below: true,
            consumers: Reach::default(),
            hook: None,
        }
    }
}

/// What makes the new mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Method {
    /// `mount -t TYPE -o OPTIONS SOURCE PLACE`, arguments only, no shell.
    Mount,
    /// As `Mount`, with what the watched namespace's `/etc/fstab` says of the mount point.
    Fstab,
    /// `systemctl restart UNIT`: repairs in place, and the gap is measured.
    Systemd(String),
    /// A command. `{target}` stands for the private place that is swapped in; with `{mountpoint}` instead
    /// the command repairs in place and the gap is measured.
    Command(Vec<String>),
}

/// One line of `include` or `exclude`: all keys that are present must match.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// Glob over the file-system type: `nfs*`, `fuse.*`.
    pub fstype: Option<String>,
    /// Glob over the mount point by components; `**` crosses them.
    pub mountpoint: Option<String>,
    /// Glob over the source.
    pub source: Option<String>,
}

/// Which mounts are watched without being named.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Discovery {
    /// Off: only named volumes are watched.
    pub enabled: bool,
    /// Empty: the built-in choice (network, FUSE and block-backed file systems that are not the root file
    /// system's own binds). Otherwise exactly what matches.
    pub include: Vec<Selector>,
    /// Taken out again, also from the built-in choice.
    pub exclude: Vec<Selector>,
}

impl Default for Discovery {
    fn default() -> Self {
        Self { enabled: true, include: Vec::new(), exclude: Vec::new() }
    }
}
