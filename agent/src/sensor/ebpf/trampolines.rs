//! Attaches programs to the ends of kernel functions. One program may hang on many functions: it is loaded again
//! for each, since the kernel ties a loaded program to one function.

use agent_common::names;
use aya::maps::{MapError, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{FExit, ProgramError, ProgramFd};
use aya::{Btf, Ebpf};

use super::explain::explain;
use super::programs::{ANY_CALL, Attachment, ProgramRow};
use crate::kernel::KernelSupport;
use crate::kernel::btf::{BtfError, Function, KernelTypes};

/// A program on a function.
#[derive(Debug)]
pub(super) struct Hung {
    /// Dropping it takes the program off.
    pub link: FdLink,
    /// The program as it was loaded for this function.
    pub program: ProgramFd,
}

/// Why a program is not attached.
#[derive(Debug, thiserror::Error)]
pub(super) enum AttachError {
    /// The function is not there, as far as types tell.
    #[error(transparent)]
    Function(#[from] BtfError),
    /// The function has other parameters than any program was written for.
    #[error("{0} has parameters on this kernel that no program fits")]
    NoFit(&'static str),
    /// Built from other sources.
    #[error("the object has no {0} of that kind")]
    Missing(String),
    /// What failed calls are handed to could not be put in its place.
    #[error("failed to prepare the program that counts failed calls: {0}")]
    Hand(#[source] MapError),
    /// Refused by the kernel.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl AttachError {
    /// In words that help.
    pub(super) fn explain(&self, row: &ProgramRow, support: &KernelSupport) -> String {
        match self {
            Self::Program(error) => explain(error, row.attachment, support),
            Self::Hand(error) => explain(error, row.attachment, support),
            Self::Function(_) | Self::NoFit(_) | Self::Missing(_) => self.to_string(),
        }
    }
}

/// What attaching needs besides the object.
#[derive(Debug)]
pub(super) struct Trampolines {
    types: KernelTypes,
    /// The prototype of the calls whose failures one program counts for all, once it is loaded.
    handed: Option<u32>,
}

impl Trampolines {
    /// Nothing is tried yet.
    pub(super) fn new(types: KernelTypes) -> Self {
        Self { types, handed: None }
    }

    /// Why nothing is lost without this program on this kernel, if so: a system call that it does not have never
    /// fails, and where a function that only tells places is missing, calls are placed by what they were given.
    pub(super) fn not_needed(&self, row: &ProgramRow) -> Option<String> {
        let reason = match (row.attachment, self.types.function(row.hook)) {
            (Attachment::CallExit, Err(error @ BtfError::NoFunction { .. }))
                if self.types.function(ANY_CALL).is_ok() =>
            {
                error.into()
            }
            (Attachment::PlaceExit(_), Err(error @ BtfError::NoFunction { .. })) => error.into(),
            (Attachment::PlaceExit(structure), Ok(function)) if fitting(&function, structure).is_none() => {
                AttachError::NoFit(row.hook)
            }
            _ => return None,
        };
        Some(reason.to_string())
    }

    /// Attaches a row of the fexit family.
    ///
    /// # Errors
    /// When the function is not there or does not fit, or the kernel refuses.
    pub(super) fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        btf: &Btf,
        row: &ProgramRow,
    ) -> Result<Hung, AttachError> {
        let function = self.types.function(row.hook)?;
        match row.attachment {
            Attachment::CallExit => self.attach_to_call((ebpf, btf), row.hook, &function),
            Attachment::PlaceExit(structure) => {
                let program = fitting(&function, structure).ok_or(AttachError::NoFit(row.hook))?;
                hang((ebpf, btf), &program, row.hook)
            }
            Attachment::FunctionExit
            | Attachment::FunctionEntry
            | Attachment::RawTracepoint
            | Attachment::RunOnce
            | Attachment::Iterator => hang((ebpf, btf), row.name, row.hook),
        }
    }

    /// Attaches the small program that hands failures on. Calls that a kernel can be built without have another
    /// prototype: where that forbids it, the program that counts hangs there itself.
    ///
    /// kernel: `bpf_prog_map_compatible`, kernel/bpf/core.c, compares prototypes since 6.12.
    fn attach_to_call(
        &mut self,
        (ebpf, btf): (&mut Ebpf, &Btf),
        hook: &'static str,
        function: &Function,
    ) -> Result<Hung, AttachError> {
        let handed = match self.handed {
            Some(prototype) => prototype,
            None => self.hand((ebpf, btf), hook, function.prototype)?,
        };
        match hang((ebpf, btf), names::PROGRAM_CALL_END, hook) {
            Err(_) if handed != function.prototype => hang((ebpf, btf), names::PROGRAM_CALL_FAILED, hook),
            attached => attached,
        }
    }

    /// Loads the program that counts failed calls and puts it where the small one finds it.
    fn hand(
        &mut self,
        (ebpf, btf): (&mut Ebpf, &Btf),
        hook: &'static str,
        prototype: u32,
    ) -> Result<u32, AttachError> {
        let counts = function_exit(ebpf, names::PROGRAM_CALL_FAILED, hook)?;
        counts.load(hook, btf)?;
        let loaded = counts.fd()?.try_clone().map_err(ProgramError::from)?;
        counts.unload()?;
        let map = ebpf
            .map_mut(names::FAILED_CALLS)
            .ok_or_else(|| AttachError::Missing(names::FAILED_CALLS.to_owned()))?;
        let mut array = ProgramArray::try_from(map).map_err(AttachError::Hand)?;
        array.set(0, &loaded, 0).map_err(AttachError::Hand)?;
        self.handed = Some(prototype);
        Ok(prototype)
    }
}

/// Loads a program for a function, attaches it, and leaves it ready for the next one.
fn hang((ebpf, btf): (&mut Ebpf, &Btf), program: &str, hook: &'static str) -> Result<Hung, AttachError> {
    let program = function_exit(ebpf, program, hook)?;
    program.load(hook, btf)?;
    let hung = program.attach().and_then(|id| {
        let link = program.take_link(id)?.into();
        Ok(Hung { link, program: program.fd()?.try_clone()? })
    });
    program.unload()?;
    Ok(hung?)
}

/// The program that finds a pointer to `structure` where this function has it: named after the structure, the
/// first argument that is one, how many there are, and whether a pointer is returned.
fn fitting(function: &Function, structure: &str) -> Option<String> {
    let place = function.parameters.iter().position(|parameter| parameter == structure)?;
    let end = if function.returns_pointer { "_pointer" } else { "" };
    Some(format!("{structure}_{place}_{}{end}", function.parameters.len()))
}

fn function_exit<'a>(
    ebpf: &'a mut Ebpf,
    program: &str,
    hook: &'static str,
) -> Result<&'a mut FExit, AttachError> {
    let no_fit =
        if program == hook { AttachError::Missing(program.to_owned()) } else { AttachError::NoFit(hook) };
    let found = ebpf.program_mut(program).ok_or(no_fit)?;
    Ok(<&mut FExit>::try_from(found)?)
}

#[cfg(test)]
mod tests;
