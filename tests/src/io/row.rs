//! What a row of the table says.

use anyhow::Result;
use nix::errno::Errno;

use super::scene::Scene;

/// What a call came to: as the kernel returns it.
pub(super) type Returned = Result<usize, Errno>;

/// One kind of I/O.
#[derive(Clone, Copy)]
pub(super) struct Row {
    /// The name as people know it.
    pub name: &'static str,
    /// The `op` label that a failed call is counted under.
    pub op: &'static str,
    /// The requests that the file system refuses.
    pub refused: &'static [&'static str],
    /// With this error; the program meets it too. `None`: nothing is refused, and the calls succeed.
    pub answer: Option<Errno>,
    /// The `errno` label that it is counted under, where that is not the error's own name.
    pub counted_as: Option<&'static str>,
    /// Whether a failed call is a fault of the volume.
    pub counts: bool,
    /// The programs that see it; any of them is enough. Where none is attached nothing wrong may be counted.
    pub seen_by: &'static [&'static str],
    /// Other operations that may rise with it, because another hook sees another side of the same fault.
    pub also: &'static [&'static str],
    /// Whether the error may come later than the call that caused it: some calls succeed then, and one that is made
    /// when all is well again may still fail. What counts is what the program met.
    pub late: bool,
    /// Whether the agent must find the caller's process to place the call: it can where it sees the ids that the
    /// kernel tells, in the first process namespace.
    pub by_process: bool,
    /// Opens what is needed, while all is well.
    pub prepare: fn(&mut Scene) -> Result<()>,
    /// Makes one call.
    pub call: fn(&mut Scene) -> Returned,
}

/// Every call that returns through the end of a system call, in either family.
pub(super) const CALL: &[&str] = &["sys_exit", "sys_openat"];

/// A row as most are: one open file, EIO, seen where system calls end.
pub(super) const fn row(
    name: &'static str,
    op: &'static str,
    refused: &'static [&'static str],
    call: fn(&mut Scene) -> Returned,
) -> Row {
    Row {
        name,
        op,
        refused,
        answer: Some(Errno::EIO),
        counted_as: None,
        counts: true,
        seen_by: CALL,
        also: &[],
        late: false,
        by_process: false,
        prepare: one_file,
        call,
    }
}

impl Row {
    /// With another error.
    pub(super) const fn answer(self, errno: Errno) -> Self {
        Self { answer: Some(errno), ..self }
    }

    /// Counted under another label than the name of its error.
    pub(super) const fn counted_as(self, label: &'static str) -> Self {
        Self { counted_as: Some(label), ..self }
    }

    /// With other programs that see it.
    pub(super) const fn seen_by(self, programs: &'static [&'static str]) -> Self {
        Self { seen_by: programs, ..self }
    }

    /// With other preparations.
    pub(super) const fn prepare(self, prepare: fn(&mut Scene) -> Result<()>) -> Self {
        Self { prepare, ..self }
    }

    /// With other operations that may rise.
    pub(super) const fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    /// With a caller whose process must be found.
    pub(super) const fn by_process(self) -> Self {
        Self { by_process: true, ..self }
    }

    /// With an error that may come late.
    pub(super) const fn late(self) -> Self {
        Self { late: true, ..self }
    }

    /// An answer that is no fault.
    pub(super) const fn harmless(self) -> Self {
        Self { counts: false, ..self }
    }

    /// Nothing is refused at all.
    pub(super) const fn unrefused(self) -> Self {
        Self { answer: None, counts: false, ..self }
    }
}

fn one_file(scene: &mut Scene) -> Result<()> {
    scene.open("data0", libc::O_RDWR)
}
