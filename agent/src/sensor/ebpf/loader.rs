//! Loads the object, sets its globals, and attaches each program on its own: what fails costs only itself.

use std::io;
use std::path::PathBuf;

use agent_common::names;
use agent_common::settings::{ERRNO_WORDS, Filter, SYSCALL_ROWS, SyscallRow, WRONG_OFFSETS};
use agent_core::errno::{COUNTED, ErrnoClass, ErrnoRow};
use aya::maps::{Array, MapError};
use aya::{Ebpf, EbpfError, EbpfLoader};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use self::attacher::{Attacher, RowState};

use super::coverage::status;
use super::explain::explain;
use super::layout::Layout;
use super::programs::{Attachment, PROGRAMS, ProgramFamily, ProgramRow};
use super::trampolines::Trampolines;
use super::{Family, Settings, syscalls};
use crate::kernel::KernelSupport;
use crate::kernel::btf::{BtfError, KernelTypes};
use crate::sensor::{ProgramState, ProgramStatus, SourceState};

pub(super) mod attacher;

/// The object, or nothing when it could not be built.
pub(super) static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/agent-ebpf"));

/// Why the source is off altogether.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    /// The configuration says so.
    #[error("turned off in the configuration")]
    TurnedOff,
    /// No toolchain was there at build time.
    #[error("built without kernel programs; `cargo xtask setup` installs what building them needs")]
    NotBuilt,
    /// No offsets.
    #[error(transparent)]
    Types(#[from] BtfError),
    /// The object itself, most often its maps.
    #[error("failed to create the maps: {0}")]
    Object(String),
    /// A map could not be filled.
    #[error("failed to fill map {map}: {reason}")]
    Fill {
        /// Which.
        map: &'static str,
        /// Why.
        reason: String,
    },
    /// The programs would read at the wrong places.
    #[error(
        "the type information at {0} is not that of the running kernel; `kernel.btf` must name the file of exactly \
         this one"
    )]
    OtherKernel(PathBuf),
    /// Every program that counts failed.
    #[error("no program could be attached: {0}")]
    NothingAttached(String),
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Holds the programs and their links; dropping it detaches them.
    pub attacher: Attacher,
    /// All of it, or part.
    pub state: SourceState,
    /// Whether this process is in the first process id namespace.
    pub same_ids: bool,
}

/// The table when nothing was tried.
pub(super) fn not_tried(reason: &str, family: Family) -> Vec<ProgramStatus> {
    let state = || match family {
        Family::Off => ProgramState::NotChosen(reason.to_owned()),
        Family::Auto | Family::Fexit | Family::SysExit => ProgramState::Failed(reason.to_owned()),
    };
    PROGRAMS.iter().map(|row| status(row, state())).collect()
}

/// Loads and attaches.
///
/// # Errors
/// When nothing can be counted at all.
pub(super) fn load(settings: &Settings, host_mnt_ns: u32) -> Result<Loaded, LoadError> {
    if settings.family == Family::Off {
        return Err(LoadError::TurnedOff);
    }
    if OBJECT.is_empty() {
        return Err(LoadError::NotBuilt);
    }
    raise_memlock();
    let support = KernelSupport::gather();
    let types = KernelTypes::open(&settings.btf)?;
    let layout = Layout::read(&types);
    let filter = Filter {
        counted: bitmap(|_| true),
        hard: bitmap(|row| row.class != ErrnoClass::Refused),
        of_sockets: bitmap(|row| matches!(row.class, ErrnoClass::HostDown | ErrnoClass::Disconnected)),
        host_mnt_ns,
        reserved: 0,
    };
    // Offsets come from `layout`; the object has no relocations that would need the kernel's types.
    let mut ebpf = EbpfLoader::new()
        .btf(None)
        .override_global(names::OFFSETS, &layout.offsets, true)
        .override_global(names::FILTER, &filter, true)
        .load(OBJECT)
        .map_err(|error| object_error(&error, &support))?;
    fill_syscalls(&mut ebpf)?;
    let mut attacher = Attacher::new(ebpf, layout, support, settings.btf.clone());
    attacher.start(settings.family, Trampolines::new(types))?;
    let state = judge(attacher.states(), settings.family)?;
    let known = attacher.agent_id();
    if known == Some(WRONG_OFFSETS) {
        return Err(LoadError::OtherKernel(settings.btf.clone()));
    }
    let same_ids = known == Some(std::process::id());
    Ok(Loaded { attacher, state, same_ids })
}

fn object_error(error: &EbpfError, support: &KernelSupport) -> LoadError {
    let text = explain(error, Attachment::RawTracepoint, support);
    LoadError::Object(match error {
        // Before 5.8 the kernel has no ring buffer; it is the only map that such a kernel refuses so.
        EbpfError::MapError(MapError::CreateError { name, .. }) if name == names::RECORDS => {
            format!("{text} (the ring buffer needs 5.8)")
        }
        _ => text,
    })
}

/// The errnos of rows that `wanted` takes, as the kernel side reads them.
fn bitmap(wanted: impl Fn(&ErrnoRow) -> bool) -> [u64; ERRNO_WORDS] {
    let mut words = [0; ERRNO_WORDS];
    for row in COUNTED.iter().filter(|row| wanted(row)) {
        if let Some(word) = words.get_mut(usize::from(row.errno.0 / 64)) {
            *word |= 1u64 << (row.errno.0 % 64);
        }
    }
    words
}

/// Before 5.11 maps count against the limit on locked memory. It is raised as far as allowed, never lowered;
/// what it was not enough for shows when maps are made.
fn raise_memlock() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_MEMLOCK) else { return };
    if soft == RLIM_INFINITY {
        return;
    }
    if setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_err()
        && hard > soft
        && let Err(error) = setrlimit(Resource::RLIMIT_MEMLOCK, hard, hard)
    {
        tracing::debug!(%error, "Limit on locked memory stays as it is");
    }
}

fn fill_syscalls(ebpf: &mut Ebpf) -> Result<(), LoadError> {
    let fill = |error: &MapError| LoadError::Fill { map: names::SYSCALLS, reason: error.to_string() };
    let map = ebpf
        .map_mut(names::SYSCALLS)
        .ok_or(LoadError::Fill { map: names::SYSCALLS, reason: "the object has no such map".to_owned() })?;
    let mut table: Array<_, SyscallRow> = Array::try_from(map).map_err(|error| fill(&error))?;
    for (number, row) in syscalls::rows() {
        if let Some(index) = u32::try_from(*number).ok().filter(|index| *index < SYSCALL_ROWS) {
            table.set(index, row, 0).map_err(|error| fill(&error))?;
        }
    }
    Ok(())
}

/// Whether what is attached is all, part, or nothing worth having.
fn judge(states: &[RowState], family: Family) -> Result<SourceState, LoadError> {
    if !is_attached(states, used(states)) {
        let wanted = if family == Family::Fexit { ProgramFamily::Fexit } else { ProgramFamily::SysExit };
        let reason = failed(states, wanted).map_or("nothing was tried", |(_, reason)| reason);
        return Err(LoadError::NothingAttached(reason.to_owned()));
    }
    Ok(how_far(states))
}

/// Whether what is attached is all or part.
pub(super) fn how_far(states: &[RowState]) -> SourceState {
    let wanted = [used(states), ProgramFamily::Always, ProgramFamily::Extra];
    match wanted.into_iter().find_map(|family| failed(states, family)) {
        Some((row, reason)) => {
            SourceState::Degraded(format!("without {}: {} ({reason})", row.name, row.lost_without))
        }
        None => SourceState::Running,
    }
}

/// The family that counts calls.
fn used(states: &[RowState]) -> ProgramFamily {
    let sys_exit = ProgramFamily::SysExit;
    if is_attached(states, sys_exit) { sys_exit } else { ProgramFamily::Fexit }
}

fn is_attached(states: &[RowState], family: ProgramFamily) -> bool {
    states.iter().any(|(row, state)| row.family == family && *state == ProgramState::Attached)
}

/// The first program of a family that is missed, and why. A kernel without the hook of an extra one is none the worse.
fn failed(states: &[RowState], family: ProgramFamily) -> Option<(&'static ProgramRow, &str)> {
    // The census says itself how it does.
    let of_family =
        states.iter().filter(|(row, _)| row.family == family && row.attachment != Attachment::Iterator);
    of_family.into_iter().find_map(|(row, state)| match state {
        ProgramState::Failed(reason) => Some((*row, reason.as_str())),
        ProgramState::Absent(reason) if family != ProgramFamily::Extra => Some((*row, reason.as_str())),
        ProgramState::Absent(_)
        | ProgramState::Attached
        | ProgramState::Waits(_)
        | ProgramState::NotChosen(_)
        | ProgramState::Forgone(_)
        | ProgramState::Covered(_) => None,
    })
}

/// What the kernel has said, where it was the kernel.
pub(super) fn os_error(error: &MapError) -> Option<i32> {
    match error {
        MapError::SyscallError(call) => call.io_error.raw_os_error(),
        MapError::IoError(error) => io::Error::raw_os_error(error),
        _ => None,
    }
}

/// Whether an error of a map says that it has no room.
pub(super) fn is_full(error: &MapError) -> bool {
    matches!(os_error(error), Some(libc::E2BIG | libc::ENOSPC | libc::ENOMEM))
}

#[cfg(test)]
mod tests;
