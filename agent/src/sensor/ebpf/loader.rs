//! Loads the object, sets its globals, and attaches each program on its own: what fails costs only itself.

use std::io;

use agent_common::names;
use agent_common::settings::{ERRNO_WORDS, Filter, SYSCALL_ROWS, SyscallRow};
use agent_core::errno::{COUNTED, ErrnoClass, ErrnoRow};
use aya::maps::{Array, MapError};
use aya::programs::{FExit, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use aya::{Btf, Ebpf, EbpfError, EbpfLoader};
use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};

use super::explain::explain;
use super::layout::Layout;
use super::programs::{Attachment, PROGRAMS, ProgramFamily, ProgramRow};
use super::{Family, Settings, syscalls};
use crate::kernel::btf::{BtfError, KernelTypes};
use crate::kernel::{KernelSupport, namespace};
use crate::sensor::{ProgramState, ProgramStatus, SourceState};

/// The object, or nothing when it could not be built.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/agent-ebpf"));

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
    /// Every program that counts failed.
    #[error("no program could be attached: {0}")]
    NothingAttached(String),
}

/// What came of it.
#[derive(Debug)]
pub(super) struct Loaded {
    /// Holds the programs and their links; dropping it detaches them.
    pub ebpf: Ebpf,
    /// The table as it turned out.
    pub programs: Vec<ProgramStatus>,
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
    let layout = Layout::read(&mut KernelTypes::open(&settings.btf)?);
    let filter = Filter {
        counted: bitmap(|_| true),
        hard: bitmap(|row| row.class != ErrnoClass::Refused),
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
    let attacher = Attacher { ebpf, layout, support, btf: None };
    attacher.run(settings)
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

fn status(row: &ProgramRow, state: ProgramState) -> ProgramStatus {
    ProgramStatus {
        program: row.name,
        family: row.family.label(),
        hook: row.hook,
        lost_without: row.lost_without,
        state,
    }
}

/// Attaches program by program.
///
/// What `auto` prefers was measured on 6.12 in instructions of an emulated machine: a successful one-byte read
/// costs 145 more with `sys_exit` and 209 with `fexit`; opening, reading attributes and closing together 430 and
/// 414; a call that is no file call 145 and 0. `sys_exit` also sees calls that no program of the other family
/// watches (changes of names, `readv`, `sendfile`, `ioctl`). To be looked at again when that changes.
struct Attacher {
    ebpf: Ebpf,
    layout: Layout,
    support: KernelSupport,
    /// The kernel's types as the loader of trampolines wants them; parsed when the first one is tried.
    btf: Option<Result<Btf, String>>,
}

impl Attacher {
    fn run(mut self, settings: &Settings) -> Result<Loaded, LoadError> {
        let mut states: Vec<(&ProgramRow, ProgramState)> = PROGRAMS
            .iter()
            .map(|row| (row, ProgramState::NotChosen("another family is used".to_owned())))
            .collect();
        self.attach_family(&mut states, ProgramFamily::Always);
        match settings.family {
            Family::Auto => {
                // `sys_exit` is one program: it attaches in full or not at all, so nothing is left to detach.
                if !self.attach_family(&mut states, ProgramFamily::SysExit) {
                    self.attach_family(&mut states, ProgramFamily::Fexit);
                }
            }
            Family::Fexit => {
                self.attach_family(&mut states, ProgramFamily::Fexit);
            }
            Family::SysExit => {
                self.attach_family(&mut states, ProgramFamily::SysExit);
            }
            Family::Off => {}
        }
        let same_ids = self.agent_id() == Some(std::process::id());
        let state = judge(&states, settings.family)?;
        let programs = states.into_iter().map(|(row, state)| status(row, state)).collect();
        Ok(Loaded { ebpf: self.ebpf, programs, state, same_ids })
    }

    /// Attaches every program of a family; whether all of them are.
    fn attach_family(&mut self, states: &mut [(&ProgramRow, ProgramState)], family: ProgramFamily) -> bool {
        let mut all = true;
        for (row, state) in states.iter_mut().filter(|(row, _)| row.family == family) {
            *state = match self.attach(row) {
                Ok(()) => ProgramState::Attached,
                Err(reason) => {
                    all = false;
                    ProgramState::Failed(reason)
                }
            };
        }
        all
    }

    fn attach(&mut self, row: &ProgramRow) -> Result<(), String> {
        if let Some(missing) = self.layout.lacks(row.needs) {
            return Err(missing.to_owned());
        }
        if row.attachment == Attachment::FunctionExit {
            return self.attach_function_exit(row);
        }
        let tracepoint = self.program::<RawTracePoint>(row)?;
        let attached = tracepoint.load().and_then(|()| match row.attachment {
            Attachment::RunOnce => tracepoint.test_run(RawTracePointRunOptions::new()).map(|_| ()),
            Attachment::RawTracepoint | Attachment::FunctionExit => tracepoint.attach(row.hook).map(|_| ()),
        });
        attached.map_err(|error| explain(&error, row.attachment, &self.support))
    }

    fn attach_function_exit(&mut self, row: &ProgramRow) -> Result<(), String> {
        let btf = self.btf.get_or_insert_with(|| {
            Btf::from_sys_fs()
                .map_err(|error| format!("the kernel's type information is not usable: {error}"))
        });
        let btf = btf.as_ref().map_err(Clone::clone)?;
        let program = self
            .ebpf
            .program_mut(row.name)
            .map(<&mut FExit>::try_from)
            .ok_or_else(|| "the object has no such program".to_owned())?
            .map_err(|error| error.to_string())?;
        let attached = program.load(row.hook, btf).and_then(|()| program.attach());
        match attached {
            Ok(_) => Ok(()),
            Err(ProgramError::Btf(error)) => {
                Err(format!("this kernel has no function {}: {error}", row.hook))
            }
            Err(error) => Err(explain(&error, row.attachment, &self.support)),
        }
    }

    fn program<'a, P>(&'a mut self, row: &ProgramRow) -> Result<&'a mut P, String>
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
    {
        let program = self.ebpf.program_mut(row.name).ok_or("the object has no such program")?;
        <&'a mut P>::try_from(program).map_err(|error| error.to_string())
    }

    /// The agent's process id as the programs see it. Where it could not be learnt it is set by hand, but only
    /// in the first process id namespace: elsewhere the number is somebody else's there (that of process 1, in
    /// a container), whose failed calls would then be taken for the agent's own.
    fn agent_id(&mut self) -> Option<u32> {
        let mut agent: Array<_, u32> = Array::try_from(self.ebpf.map_mut(names::AGENT)?).ok()?;
        let learnt = agent.get(&0, 0).ok().filter(|learnt| *learnt != 0);
        let known = known_id(learnt, std::process::id(), namespace::sees_host_processes())?;
        if learnt.is_none() {
            agent.set(0, known, 0).ok()?;
        }
        Some(known)
    }
}

/// What a program has learnt, else the own number where it means the same process to the programs.
fn known_id(learnt: Option<u32>, own: u32, in_first_namespace: Option<bool>) -> Option<u32> {
    learnt.or_else(|| (in_first_namespace == Some(true)).then_some(own))
}

/// Whether what is attached is all, part, or nothing worth having.
fn judge(states: &[(&ProgramRow, ProgramState)], family: Family) -> Result<SourceState, LoadError> {
    let failed = |wanted: ProgramFamily| {
        states.iter().find_map(|(row, state)| match state {
            ProgramState::Failed(reason) if row.family == wanted => {
                Some((row.name, row.lost_without, reason))
            }
            ProgramState::Failed(_) | ProgramState::Attached | ProgramState::NotChosen(_) => None,
        })
    };
    let attached = |wanted: ProgramFamily| {
        states.iter().any(|(row, state)| row.family == wanted && *state == ProgramState::Attached)
    };
    let used = if attached(ProgramFamily::SysExit) { ProgramFamily::SysExit } else { ProgramFamily::Fexit };
    if !attached(used) {
        let wanted = if family == Family::Fexit { ProgramFamily::Fexit } else { ProgramFamily::SysExit };
        let reason = failed(wanted).map_or("nothing was tried", |(_, _, reason)| reason);
        return Err(LoadError::NothingAttached(reason.to_owned()));
    }
    let worst = failed(used).or_else(|| failed(ProgramFamily::Always));
    Ok(match worst {
        Some((name, lost, reason)) => SourceState::Degraded(format!("without {name}: {lost} ({reason})")),
        None => SourceState::Running,
    })
}

/// Whether an error of a map says that it has no room.
pub(super) fn is_full(error: &MapError) -> bool {
    let os = match error {
        MapError::SyscallError(call) => call.io_error.raw_os_error(),
        MapError::IoError(error) => io::Error::raw_os_error(error),
        _ => None,
    };
    matches!(os, Some(libc::E2BIG | libc::ENOSPC | libc::ENOMEM))
}

#[cfg(test)]
mod tests;
