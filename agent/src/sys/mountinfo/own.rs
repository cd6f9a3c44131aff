//! One mount in the mount table of the task that asks.

use std::io::BufRead;

use agent_core::id::MountId;

use super::{Place, leading_id, parse_place};

/// The mount table of the namespace that this task is in.
pub const OWN_TABLE: &str = "/proc/thread-self/mountinfo";

/// The mount with this id. Lines that are none are passed over, and an error of reading ends the table.
#[must_use]
pub fn find_place(mut table: impl BufRead, id: MountId) -> Option<Place> {
    let mut line = Vec::new();
    while table.read_until(b'\n', &mut line).ok()? > 0 {
        if leading_id(&line) == Some(id)
            && let Ok(place) = parse_place(&line)
        {
            return Some(place);
        }
        line.clear();
    }
    None
}

#[cfg(test)]
mod tests {
    use agent_core::id::SuperblockId;

    use super::*;

    #[test]
    fn the_table_is_searched_by_whole_ids_and_odd_lines_are_skipped() {
        let table = b"45 1 0:5 / /a rw - tmpfs t rw\n\xff\xfe\n\n455 28\n\
            455 28 8:33 / /mnt/a rw - ext4 /dev/sdc1 rw\n";
        let found = |id| find_place(&table[..], MountId(id)).map(|place| place.superblock);
        assert_eq!(found(455), Some(SuperblockId { major: 8, minor: 33 }));
        assert_eq!(found(4), None);
    }
}
