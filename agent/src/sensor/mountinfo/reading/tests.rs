//! Which reader is used, on doubles that refuse as told.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use agent_core::topology::Mount;
use nix::errno::Errno;

use super::*;
use crate::sys::statmount::StatError;

const TEXT: &[u8] = b"1 1 0:1 / / rw - tmpfs t rw\n2 1 0:2 / /a rw - tmpfs t rw\n";

struct Text;

impl TableSource for Text {
    fn read(&mut self, piece: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        piece(TEXT);
        Ok(())
    }

    fn changes(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Shows what the text shows, unless it is told to refuse.
#[derive(Clone, Default)]
struct Kernel {
    refuses: Arc<Mutex<Option<Errno>>>,
}

impl Mounts for Kernel {
    fn list(&mut self) -> Result<Vec<u64>, Errno> {
        let refuses = *self.refuses.lock().unwrap();
        refuses.map_or(Ok(vec![1, 2]), Err)
    }

    fn get(&mut self, id: u64) -> Result<Option<Mount>, StatError> {
        let mounts = parse_table(TEXT).mounts.into_iter();
        let mut mounts = mounts.map(|mount| Mount { unique: Some(u64::from(mount.id.0)), ..mount });
        Ok(mounts.find(|mount| mount.unique == Some(id)))
    }
}

fn reading() -> (Reading, Kernel) {
    let kernel = Kernel::default();
    (Reading::with(Box::new(Text), Box::new(kernel.clone())), kernel)
}

fn refuse(kernel: &Kernel, errno: Option<Errno>) {
    *kernel.refuses.lock().unwrap() = errno;
}

fn has_ids(look: &Look) -> bool {
    look.table.as_ref().unwrap().mounts().iter().all(|mount| mount.unique.is_some())
}

#[test]
fn a_refusal_of_the_moment_is_read_by_text_and_compared_again_later() {
    let (mut reading, kernel) = reading();
    assert!(has_ids(&reading.all().unwrap()));
    assert!(reading.is_by_id());
    refuse(&kernel, Some(Errno::ENOMEM));
    let look = reading.refresh(&BTreeSet::new(), &BTreeSet::new()).unwrap();
    assert!(!has_ids(&look) && !reading.is_by_id());
    assert!(matches!(reading.state(), SourceState::Off(why) if why.contains("ENOMEM")));
    refuse(&kernel, None);
    reading.all().unwrap();
    assert!(!reading.is_by_id(), "not before the backstop");
    reading.compare_at = Some(clock::now());
    assert!(has_ids(&reading.all().unwrap()));
    assert_eq!(reading.state(), SourceState::Running);
    // The text's table is news again, although it is what it was when it was last read.
    refuse(&kernel, Some(Errno::ENOMEM));
    assert!(!has_ids(&reading.all().unwrap()));
}

#[test]
fn a_kernel_without_the_calls_is_not_asked_again() {
    for errno in [Errno::ENOSYS, Errno::EPERM] {
        let (mut reading, kernel) = reading();
        refuse(&kernel, Some(errno));
        assert!(!has_ids(&reading.all().unwrap()));
        refuse(&kernel, None);
        reading.compare_at = Some(Monotonic::default());
        reading.all().unwrap();
        assert!(!reading.is_by_id(), "{errno}");
    }
}

#[test]
fn a_reader_that_was_not_compared_is_not_believed() {
    let (mut reading, _) = reading();
    assert!(!reading.is_by_id());
    assert!(!has_ids(&reading.patch(&BTreeSet::from([2])).unwrap()));
}
