//! What a row is.

use std::path::PathBuf;

use anyhow::Result;
use integration_tests::harness::needs::Need;
use serde_json::Value;

use super::user::User;

/// Where the volume of a row is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The name of the volume, also free for devices and directories of the row.
    pub(crate) name: String,
    /// The mount point, an empty directory.
    pub(crate) mountpoint: PathBuf,
}

impl Place {
    /// Where a second volume of the row is, that must not be taken for the first.
    pub(crate) fn beside(&self) -> Self {
        let name = format!("{}beside", self.name);
        let mountpoint = self.mountpoint.with_file_name(&name);
        Self { name, mountpoint }
    }
}

/// A step of a row. The world is what its rows share: a server, the tools of one kind of device.
pub(crate) type Step<W> = fn(&mut W, &Place) -> Result<()>;

/// One row: a fault, and what must be said about it.
#[derive(Clone, Copy)]
pub(crate) struct Fault<W: 'static> {
    /// The fault as the reader of the table sees it. Who touches the volume is added.
    pub(crate) row: &'static str,
    /// The reasons that are right: which one it is depends on what the kernel lets be seen.
    pub(crate) reasons: &'static [&'static str],
    /// Without these the row is left out.
    pub(crate) needs: &'static [Need],
    /// Who touches the volume once it is broken.
    pub(crate) user: User,
    /// Whether there is a sentinel for the probe to read.
    pub(crate) sentinel: bool,
    /// Bytes in the file that the user reads.
    pub(crate) data: usize,
    /// The deadline of a probe.
    pub(crate) deadline: &'static str,
    /// Mounts the volume.
    pub(crate) set_up: Step<W>,
    /// Breaks it.
    pub(crate) break_it: Step<W>,
    /// Makes it good again, where that is possible; then it must be healthy again.
    pub(crate) repair: Option<Step<W>>,
    /// There is a second volume beside it. What must hold of that one while the first is broken; what it says
    /// is added to the row.
    pub(crate) beside: Option<fn(&Value) -> Result<String>>,
}

impl<W> Fault<W> {
    /// The row's name, with who touches the volume.
    pub(crate) fn name(&self) -> String {
        format!("{}, {}", self.row, self.user.word())
    }
}

/// The names of rows.
pub(crate) fn names<W>(faults: &[Fault<W>]) -> Vec<String> {
    faults.iter().map(Fault::name).collect()
}

/// The names of rows about repairs.
pub(crate) fn repaired<W>(repairs: &[Repair<W>]) -> Vec<String> {
    repairs.iter().map(|repair| repair.fault.row.to_owned()).collect()
}

/// One row about repairs: a fault, what the agent needs to repair it, and a container that holds the volume meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Repair<W: 'static> {
    /// The fault. Its repair is its end: after that a new mount works.
    pub(crate) fault: Fault<W>,
    /// The type for mount(8).
    pub(crate) fstype: &'static str,
    /// The source and the options for mount(8).
    pub(crate) what: fn(&W, &Place) -> Result<(String, String)>,
    /// Whether the fault lasts until the repair waits for the server.
    pub(crate) server_is_away: bool,
    /// Whether it may end without a repair: the client finds its server again.
    pub(crate) may_recover: bool,
    /// Whether a process of the container holds a file of the volume open.
    pub(crate) is_held: bool,
    /// Whether nothing is ever missing at its paths, where the kernel can mount beneath. A device that can be mounted
    /// only once has to go first.
    pub(crate) is_gapless: bool,
}

/// What the rows of one table share.
pub(crate) trait World {
    /// After a row, however it ended: nothing of it may be left for the next.
    ///
    /// # Errors
    /// When something stays.
    fn clear(&mut self, place: &Place) -> Result<()>;
}
