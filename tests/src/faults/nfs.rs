//! NFS mounts whose server forgets them, does not answer, refuses, or loses one of its directories.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use integration_tests::harness::needs::Need;
use serde_json::Value;

use super::fault::{Fault, Place, Repair, World, names, repaired};
use super::nfs_server::{EXPORT, EXPORT4, NfsServer, lose_packets};
use super::tools::{detach_all, mount};
use super::user::User;
use super::watch::{Watch, counted_by};

pub(super) const NEEDS: &[Need] = &[
    Need::Root,
    Need::Module("loop"),
    Need::Module("ext4"),
    Need::Module("nfsd"),
    Need::Module("nfs"),
    Need::Module("nfsv3"),
    Need::Module("nfsv4"),
    Need::Module("nf_tables"),
    Need::Tool("nft"),
    Need::Tool("exportfs"),
    Need::Tool("rpc.nfsd"),
    Need::Tool("mount.nfs"),
];

/// The server of all rows.
#[derive(Debug)]
struct Clients {
    server: NfsServer,
    packets_lost: bool,
    mounts: u8,
}

impl Clients {
    fn start(directory: &Path) -> Result<Self> {
        Ok(Self { server: NfsServer::start(directory)?, packets_lost: false, mounts: 0 })
    }

    /// Mounts a directory of the export, made for the row. Each row has an address of its own, and so a
    /// connection of its own.
    fn mount(&mut self, place: &Place, options: &str) -> Result<()> {
        self.mounts += 1;
        self.mount_directory(place, options)
    }

    fn mount_directory(&self, place: &Place, options: &str) -> Result<()> {
        fs::create_dir_all(directory_of(place)).context("cannot make a directory on the server")?;
        mount("nfs", &self.source(place, options), &place.mountpoint, options)
    }

    /// What the row that is running mounts.
    fn source(&self, place: &Place, options: &str) -> String {
        let export = if options.contains("vers=3") { EXPORT } else { EXPORT4 };
        format!("127.0.0.{}:{export}/{}", self.mounts, place.name)
    }

    fn two_directories(&mut self, place: &Place, options: &str) -> Result<()> {
        self.mount(place, options)?;
        self.mount_directory(&place.beside(), options)
    }

    fn lose(&mut self, on: bool) -> Result<()> {
        lose_packets(on)?;
        self.packets_lost = on;
        Ok(())
    }
}

impl World for Clients {
    fn clear(&mut self, place: &Place) -> Result<()> {
        if self.packets_lost {
            self.lose(false)?;
        }
        if !self.server.is_running() {
            self.server.run(true)?;
        }
        self.server.export(1)?;
        detach_all(&place.beside().mountpoint)?;
        detach_all(&place.mountpoint)
    }
}

/// The directory of a volume, on the server's side.
fn directory_of(place: &Place) -> PathBuf {
    Path::new(EXPORT).join(&place.name)
}

const V3: &str = "vers=3,hard,nolock";
const V4: &str = "vers=4.2,hard";
const V3_SOFT: &str = "vers=3,soft,timeo=10,retrans=1,nolock";
const V3_SOFTERR: &str = "vers=3,softerr,timeo=10,retrans=1,nolock";
const V4_SOFT: &str = "vers=4.2,soft,timeo=10,retrans=1";

/// The export comes back as another one: every handle of the mount is dead.
const STALE: Fault<Clients> = Fault {
    row: "NFSv3, export replaced",
    reasons: &["stale"],
    needs: &[],
    user: User::Nobody,
    sentinel: false,
    data: 64 << 10,
    deadline: "2s",
    set_up: |world, place| world.mount(place, V3),
    break_it: |world, _| world.server.export(2),
    repair: Some(|world, _| world.server.export(1)),
    beside: None,
};

const UNREACHABLE: Fault<Clients> = Fault {
    row: "NFSv3 hard, packets lost",
    reasons: &["hung"],
    break_it: |world, _| world.lose(true),
    repair: Some(|world, _| world.lose(false)),
    ..STALE
};

/// A deadline that the mount's own limits keep.
const UNREACHABLE_SOFT: Fault<Clients> = Fault {
    row: "NFSv3 soft, packets lost",
    reasons: &["io_error", "host_down"],
    deadline: "8s",
    set_up: |world, place| world.mount(place, V3_SOFT),
    ..UNREACHABLE
};

const STOPPED: Fault<Clients> = Fault {
    row: "NFSv3 hard, server stopped",
    break_it: |world, _| world.server.run(false),
    repair: Some(|world, _| world.server.run(true)),
    ..UNREACHABLE
};

/// One directory of an export is removed on the server; another is mounted beside it, from the same superblock.
const ONE_OF_TWO: Fault<Clients> = Fault {
    row: "NFSv3, one of two directories of an export removed",
    user: User::Asks,
    set_up: |world, place| world.two_directories(place, V3),
    break_it: |_, place| remove_on_the_server(place),
    repair: None,
    beside: Some(only_the_first_is_stale),
    ..STALE
};

const FAULTS: &[Fault<Clients>] = &[
    STALE,
    Fault { user: User::Asks, ..STALE },
    Fault { row: "NFSv4.2, export replaced", set_up: |world, place| world.mount(place, V4), ..STALE },
    Fault {
        row: "NFSv4.2, export replaced",
        user: User::Asks,
        set_up: |world, place| world.mount(place, V4),
        ..STALE
    },
    ONE_OF_TWO,
    Fault {
        row: "NFSv4.2, one of two directories of an export removed",
        set_up: |world, place| world.two_directories(place, V4),
        ..ONE_OF_TWO
    },
    UNREACHABLE_SOFT,
    Fault {
        row: "NFSv3 softerr, packets lost",
        // Attributes are answered from the cache, and what is not takes several waits.
        reasons: &["host_down", "hung"],
        set_up: |world, place| world.mount(place, V3_SOFTERR),
        ..UNREACHABLE_SOFT
    },
    UNREACHABLE,
    Fault { user: User::Reads, ..UNREACHABLE },
    Fault { row: "NFSv4.2 hard, packets lost", set_up: |world, place| world.mount(place, V4), ..UNREACHABLE },
    Fault {
        row: "NFSv4.2 soft, packets lost",
        reasons: &["hung", "io_error", "host_down"],
        deadline: "2s",
        set_up: |world, place| world.mount(place, V4_SOFT),
        ..UNREACHABLE
    },
    STOPPED,
    Fault { row: "NFSv4.2 hard, server stopped", set_up: |world, place| world.mount(place, V4), ..STOPPED },
    Fault {
        row: "NFSv3 soft, server stopped",
        reasons: &["io_error", "host_down"],
        deadline: "8s",
        set_up: |world, place| world.mount(place, V3_SOFT),
        ..STOPPED
    },
];

/// The export has come back as another one already: a new mount works at once.
const STALE_REPAIRED: Repair<Clients> = Repair {
    fault: Fault { sentinel: true, repair: None, ..STALE },
    fstype: "nfs",
    what: |world, place| Ok((world.source(place, V3), V3.to_owned())),
    server_is_away: false,
    may_recover: false,
    is_held: true,
    is_gapless: true,
};

/// The packets come through again once the repair waits for that.
const HUNG_REPAIRED: Repair<Clients> = Repair {
    fault: Fault { row: "NFSv3 hard, packets lost for a while", sentinel: true, ..UNREACHABLE },
    server_is_away: true,
    may_recover: true,
    ..STALE_REPAIRED
};

const REPAIRS: &[Repair<Clients>] = &[
    STALE_REPAIRED,
    Repair {
        fault: Fault {
            row: "NFSv4.2, export replaced",
            set_up: |world, place| world.mount(place, V4),
            ..STALE_REPAIRED.fault
        },
        fstype: "nfs4",
        what: |world, place| Ok((world.source(place, V4), V4.to_owned())),
        ..STALE_REPAIRED
    },
    HUNG_REPAIRED,
    Repair {
        fault: Fault {
            row: "NFSv4.2 hard, packets lost for a while",
            set_up: |world, place| world.mount(place, V4),
            ..HUNG_REPAIRED.fault
        },
        fstype: "nfs4",
        what: |world, place| Ok((world.source(place, V4), V4.to_owned())),
        ..HUNG_REPAIRED
    },
];

/// The names of the rows about repairs.
pub(super) fn repairs() -> Vec<String> {
    repaired(REPAIRS)
}

/// Runs those.
pub(super) fn run_repairs(watch: &mut Watch<'_>) -> Result<()> {
    watch.repair(&mut Clients::start(watch.directory())?, REPAIRS)
}

/// The names of the rows.
pub(super) fn rows() -> Vec<String> {
    names(FAULTS)
}

/// Runs them.
pub(super) fn run(watch: &mut Watch<'_>) -> Result<()> {
    watch.run(&mut Clients::start(watch.directory())?, FAULTS)
}

fn remove_on_the_server(place: &Place) -> Result<()> {
    let directory = directory_of(place);
    for entry in fs::read_dir(&directory).context("cannot list the directory on the server")?.flatten() {
        fs::remove_file(entry.path()).context("cannot empty the directory on the server")?;
    }
    fs::remove_dir(&directory).context("cannot remove the directory on the server")
}

fn only_the_first_is_stale(beside: &Value) -> Result<String> {
    let errors = counted_by(beside, "bpf");
    ensure!(errors == 0, "{errors} errors were counted for the other directory");
    let state = beside.get("state").and_then(Value::as_str);
    ensure!(state == Some("healthy"), "the other directory is {state:?}");
    Ok("told apart".to_owned())
}
