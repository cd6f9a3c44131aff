//! Putting a sentinel on a volume, once, because a person asked for it: what is asked of a worker, and what it
//! answers.

use agent_core::errno::Errno;
use agent_core::observation::ProbeResult;
use agent_core::path::BytePath;

/// The sentinel to put there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planting {
    /// Relative to the volume's root.
    pub path: BytePath,
    /// What to write, without the newline that is added.
    pub content: Vec<u8>,
    /// Whether somebody chose the content: then a file that has it already is what was wanted.
    pub is_chosen: bool,
    /// Whether a file that is there may stay, whatever its content.
    pub may_adopt: bool,
}

/// A sentinel that is in place, with its content.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Planted {
    /// It was written, and read back past the cache.
    Written(Vec<u8>),
    /// It was there with this content already.
    Found(Vec<u8>),
    /// It was there with other content, which counts from now on.
    Adopted(Vec<u8>),
}

impl Planted {
    /// The content.
    #[must_use]
    pub fn content(&self) -> &[u8] {
        match self {
            Self::Written(content) | Self::Found(content) | Self::Adopted(content) => content,
        }
    }
}

/// Why there is no sentinel. Nothing of the agent's is left behind, unless it says so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlantFault {
    /// The volume could not be looked at, or is not the one that is meant.
    Look(ProbeResult),
    /// A file is there, with other content.
    Exists,
    /// A file is there, without content.
    Empty,
    /// Something is there that is no small plain file, or the way to it leads elsewhere.
    Unusable,
    /// The directory for it is not there.
    NoDirectory,
    /// A file is mounted there, not a directory.
    NoRoom,
    /// It could not be written.
    Write(Errno),
    /// It was written, and did not come back past the cache.
    ReadBack {
        /// What reading met; `None` when it gave something else.
        errno: Option<Errno>,
        /// Whether the file is gone again.
        is_removed: bool,
    },
}
