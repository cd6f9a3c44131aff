//! What is at a volume's place that should not be there, for people.

use alloc::format;
use alloc::string::String;

use crate::discovery::Presence;
use crate::engine::volume::Volume;
use crate::path::escape;

impl Volume {
    /// What is there and what should be, where the table shows something wrong.
    pub(super) fn at_its_place(&self, presence: Presence) -> Option<String> {
        match presence {
            Presence::WrongMount => {
                let spec = self.spec.as_ref()?;
                let shown = self.shown.as_ref()?;
                let meant = named(spec.fstype.as_deref(), spec.source.as_deref())?;
                let found = named(Some(&shown.fstype), Some(&shown.source))?;
                Some(format!("expected {meant}, found {found}"))
            }
            Presence::Covered => Some(match &self.over {
                Some(over) => {
                    format!("{} lies over it", named(Some(&over.fstype), Some(&over.source))?)
                }
                None => String::from("a mount lies over a directory above it"),
            }),
            Presence::Present | Presence::Missing | Presence::Idle => None,
        }
    }
}

fn named(fstype: Option<&str>, source: Option<&[u8]>) -> Option<String> {
    match (fstype, source.map(escape)) {
        (Some(fstype), Some(source)) => Some(format!("{fstype} of {source}")),
        (Some(fstype), None) => Some(String::from(fstype)),
        (None, Some(source)) => Some(source),
        (None, None) => None,
    }
}
