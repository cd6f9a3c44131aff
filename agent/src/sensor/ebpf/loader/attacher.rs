//! Attaches program by program, at the start and, for those of modules, whenever their module turns up.

use std::path::{Path, PathBuf};

use agent_common::names;
use agent_common::settings::ModuleOffsets;
use aya::maps::{Array, MapError};
use aya::programs::{FEntry, Iter, ProgramError, RawTracePoint, RawTracePointRunOptions, TestRun as _};
use aya::{Btf, Ebpf, Endianness};

use super::super::Family;
use super::super::coverage::statuses;
use super::super::explain::{Refusal, refusal};
use super::super::io_operations::OPERATIONS;
use super::super::layout::Layout;
use super::super::links::Links;
use super::super::programs::{Attachment, PROGRAMS, ProgramFamily, ProgramRow};
use super::super::skipped::Skipped;
use super::super::trampolines::{Hung, Trampolines};
use super::LoadError;
use crate::kernel::btf::KernelTypes;
use crate::kernel::btf::modules::Module;
use crate::kernel::{KernelSupport, namespace, trampolines};
use crate::sensor::{ProgramState, ProgramStatus};

/// A row and what became of it.
pub(in super::super) type RowState = (&'static ProgramRow, ProgramState);

/// Holds the programs and their links; dropping it detaches them.
///
/// A program that is attached to a tracepoint of a module keeps that module loaded until the agent ends.
///
/// What `auto` prefers is measured (`tests/OVERHEAD.md`, on 6.12): a successful read or write costs 189 instructions more
/// with `sys_exit` and 253 with `fexit`, packing a source tree 3.7 and 4.3 %; a call that is no file call 144 and 0, so
/// a node that does little but talk over the network is better off with `fexit`. And `sys_exit` is one program where
/// `fexit` is a hundred, which takes its time to attach and longer to detach.
#[derive(Debug)]
pub(in super::super) struct Attacher {
    /// The object.
    pub ebpf: Ebpf,
    layout: Layout,
    support: KernelSupport,
    /// Where the kernel describes its structures.
    types: PathBuf,
    /// The kernel's types as the library wants them; parsed when the first program needs them, dropped after the
    /// last.
    btf: ParsedTypes,
    states: Vec<RowState>,
    /// Of programs on functions.
    links: Links,
    /// How often the kernel has skipped what is attached.
    pub skipped: Skipped,
    /// The iterator, once it is loaded and until it is taken.
    census: Option<Iter>,
    /// Why nothing should hang on functions here.
    danger: Option<&'static str>,
}

impl Attacher {
    /// Nothing is attached yet.
    pub(super) fn new(ebpf: Ebpf, layout: Layout, support: KernelSupport, types: PathBuf) -> Self {
        let version = support.version().unwrap_or_default();
        let danger = trampolines::danger(version, namespace::sees_host_processes());
        let not_chosen = || ProgramState::NotChosen("another family is used".to_owned());
        let states = PROGRAMS.iter().map(|row| (row, not_chosen())).collect();
        Self {
            ebpf,
            layout,
            support,
            types,
            btf: ParsedTypes(None),
            states,
            links: Links::new(),
            skipped: Skipped::default(),
            census: None,
            danger,
        }
    }

    /// Attaches what the family asks for.
    ///
    /// # Errors
    /// When a map of the object cannot be filled.
    pub(super) fn start(&mut self, family: Family, mut trampolines: Trampolines) -> Result<(), LoadError> {
        self.write_modules()?;
        let ends = &mut trampolines;
        self.attach_family(ProgramFamily::Always, ends);
        self.attach_family(ProgramFamily::Extra, ends);
        match family {
            // `sys_exit` is one program: it attaches in full or not at all, so nothing is left to detach.
            Family::Auto if self.attach_family(ProgramFamily::SysExit, ends) => {}
            Family::Auto | Family::Fexit => {
                self.attach_family(ProgramFamily::Fexit, ends);
            }
            Family::SysExit => {
                self.attach_family(ProgramFamily::SysExit, ends);
            }
            Family::Off => {}
        }
        // The kernel's types are large, and nothing of them is needed any more.
        drop(trampolines);
        self.btf = ParsedTypes(None);
        settle(&mut self.states);
        self.write_operations()
    }

    /// The table as it has turned out so far.
    pub(in super::super) fn states(&self) -> &[RowState] {
        &self.states
    }

    /// The table for others.
    pub(in super::super) fn programs(&self) -> Vec<ProgramStatus> {
        statuses(&self.states)
    }

    /// Tries again what waits for a module that is there by now; every program whose state is another one since.
    pub(in super::super) fn retry(&mut self) -> Vec<ProgramStatus> {
        let is_due = |(row, state): &RowState| {
            let loaded = || row.module.is_some_and(|name| module(name) == Module::Loaded);
            matches!(state, ProgramState::Waits(_)) && loaded()
        };
        let due: Vec<usize> =
            (0..).zip(&self.states).filter(|(_, row)| is_due(row)).map(|(at, _)| at).collect();
        if due.is_empty() {
            return Vec::new();
        }
        // The same file was read at the start; without it the fields stay missing, and the programs say so.
        if let Ok(types) = KernelTypes::open(&self.types) {
            self.layout.read_modules(&types);
        }
        if let Err(error) = self.write_modules() {
            tracing::debug!(%error, "Offsets of modules stay as they are");
            return Vec::new();
        }
        let before = self.programs();
        for at in due {
            let Some((row, _)) = self.states.get(at) else { continue };
            let row = *row;
            let state = self.attach_state(row, None);
            if let Some((_, slot)) = self.states.get_mut(at) {
                *slot = state;
            }
        }
        self.btf = ParsedTypes(None);
        settle(&mut self.states);
        changed(&before, self.programs())
    }

    /// Attaches every program of a family; whether all of them are.
    fn attach_family(&mut self, family: ProgramFamily, ends: &mut Trampolines) -> bool {
        let mut all = true;
        for at in 0..self.states.len() {
            let Some((row, _)) = self.states.get(at).filter(|(row, _)| row.family == family) else {
                continue;
            };
            let row = *row;
            let state = self.attach_state(row, Some(ends));
            all &= !matches!(state, ProgramState::Absent(_) | ProgramState::Failed(_));
            if let Some((_, slot)) = self.states.get_mut(at) {
                *slot = state;
            }
        }
        all
    }

    /// Ends of functions are there at the start alone: no module has any that is watched.
    fn attach_state(&mut self, row: &'static ProgramRow, ends: Option<&mut Trampolines>) -> ProgramState {
        if let Some(reason) = spared(row, &self.states) {
            return ProgramState::NotChosen(reason);
        }
        if let Some(reason) = ends.as_ref().and_then(|ends| ends.not_needed(row)) {
            return ProgramState::NotChosen(reason);
        }
        match self.attach(row, ends) {
            Ok(()) => ProgramState::Attached,
            Err(refused) => not_attached(row, refused, row.module.map(module)),
        }
    }

    fn attach(&mut self, row: &'static ProgramRow, ends: Option<&mut Trampolines>) -> Result<(), Refusal> {
        if let Some(missing) = self.layout.lacks(row.needs) {
            return Err(Refusal::Absent(missing.to_owned()));
        }
        if let Some(danger) = self.danger.filter(|_| row.attachment.is_on_function()) {
            return Err(Refusal::Absent(danger.to_owned()));
        }
        match row.attachment {
            Attachment::FunctionExit | Attachment::CallExit | Attachment::PlaceExit(_) => {
                let ends = ends.ok_or_else(|| "ends of functions are attached at the start".to_owned())?;
                let btf = self.btf.get(&self.types)?;
                let hung = ends.attach(&mut self.ebpf, btf, row);
                self.hold(row, hung.map_err(|error| error.explain(row, &self.support))?)
            }
            Attachment::FunctionEntry => {
                let hung = self.attach_function(row)?;
                self.hold(row, hung)
            }
            Attachment::Iterator => self.load_iterator(row),
            Attachment::RunOnce => {
                let program = self.program::<RawTracePoint>(row)?;
                let run = loaded(program.load())
                    .and_then(|()| program.test_run(RawTracePointRunOptions::new()).map(drop));
                run.map_err(|error| refusal(&error, row.attachment, &self.support))
            }
            Attachment::RawTracepoint => {
                let program = self.program::<RawTracePoint>(row)?;
                let attached = loaded(program.load()).and_then(|()| {
                    program.attach(row.hook)?;
                    Ok(program.fd()?.try_clone()?)
                });
                let program = attached.map_err(|error| refusal(&error, row.attachment, &self.support))?;
                self.skipped.watch(row, program);
                Ok(())
            }
        }
    }

    fn hold(&mut self, row: &'static ProgramRow, hung: Hung) -> Result<(), Refusal> {
        let held = self.links.hold(row.hook, hung.link);
        held.map_err(|error| refusal(&error, row.attachment, &self.support))?;
        self.skipped.watch(row, hung.program);
        Ok(())
    }

    /// Loads it and keeps a handle of its own: whoever takes the census makes a new link for each.
    fn load_iterator(&mut self, row: &ProgramRow) -> Result<(), Refusal> {
        let btf = self.btf.get(&self.types)?;
        let kind = row.hook.trim_start_matches("iter/");
        let program = self.ebpf.program_mut(row.name).ok_or_else(no_program)?;
        let program = <&mut Iter>::try_from(program).map_err(|error| error.to_string())?;
        let loaded =
            program.load(kind, btf).and_then(|()| Iter::from_program_info(program.info()?, row.name.into()));
        self.census = Some(loaded.map_err(|error| refusal(&error, row.attachment, &self.support))?);
        Ok(())
    }

    /// The census of waiting tasks, or why there is none.
    pub(in super::super) fn take_census(&mut self) -> Result<Iter, String> {
        self.census.take().ok_or_else(|| {
            let of_iterator = self.states.iter().find(|(row, _)| row.attachment == Attachment::Iterator);
            match of_iterator {
                Some((
                    _,
                    ProgramState::Absent(reason)
                    | ProgramState::Failed(reason)
                    | ProgramState::Forgone(reason)
                    | ProgramState::NotChosen(reason)
                    | ProgramState::Waits(reason),
                )) => reason.clone(),
                Some((_, ProgramState::Covered(family))) => format!("covered by {family}"),
                Some((_, ProgramState::Attached)) | None => "the iterator was not kept".to_owned(),
            }
        })
    }

    fn attach_function(&mut self, row: &ProgramRow) -> Result<Hung, Refusal> {
        let btf = self.btf.get(&self.types)?;
        let program = self.ebpf.program_mut(row.name).ok_or_else(no_program)?;
        let program = <&mut FEntry>::try_from(program).map_err(|error| error.to_string())?;
        let hung = loaded(program.load(row.hook, btf)).and_then(|()| {
            let id = program.attach()?;
            let link = program.take_link(id)?.into();
            Ok(Hung { link, program: program.fd()?.try_clone()? })
        });
        hung.map_err(|error| match error {
            ProgramError::Btf(error) => {
                Refusal::Absent(format!("this kernel has no function {}: {error}", row.hook))
            }
            error => refusal(&error, row.attachment, &self.support),
        })
    }

    fn program<'a, P>(&'a mut self, row: &ProgramRow) -> Result<&'a mut P, Refusal>
    where
        &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
    {
        let program = self.ebpf.program_mut(row.name).ok_or_else(no_program)?;
        <&'a mut P>::try_from(program).map_err(|error| error.to_string().into())
    }

    fn write_modules(&mut self) -> Result<(), LoadError> {
        let offsets = self.layout.modules;
        let mut map: Array<_, ModuleOffsets> = self.array(names::MODULES)?;
        map.set(0, offsets, 0).map_err(|error| fill(names::MODULES, &error))
    }

    /// Tells the program of io_uring what to count.
    fn write_operations(&mut self) -> Result<(), LoadError> {
        let mut map: Array<_, u32> = self.array(names::IO_OPERATIONS)?;
        for (operation, op) in OPERATIONS {
            map.set(*operation, u32::from(*op) + 1, 0).map_err(|error| fill(names::IO_OPERATIONS, &error))?;
        }
        Ok(())
    }

    fn array<T: aya::Pod>(
        &mut self,
        name: &'static str,
    ) -> Result<Array<&mut aya::maps::MapData, T>, LoadError> {
        let map = self
            .ebpf
            .map_mut(name)
            .ok_or(LoadError::Fill { map: name, reason: "the object has no such map".to_owned() })?;
        Array::try_from(map).map_err(|error| fill(name, &error))
    }

    /// The agent's process id as the programs see it. Where it could not be learnt it is set by hand, but only
    /// in the first process id namespace: elsewhere the number is somebody else's there (that of process 1, in
    /// a container), whose failed calls would then be taken for the agent's own.
    pub(super) fn agent_id(&mut self) -> Option<u32> {
        let mut agent: Array<_, u32> = Array::try_from(self.ebpf.map_mut(names::AGENT)?).ok()?;
        let learnt = agent.get(&0, 0).ok().filter(|learnt| *learnt != 0);
        let known = known_id(learnt, std::process::id(), namespace::sees_host_processes())?;
        if learnt.is_none() {
            agent.set(0, known, 0).ok()?;
        }
        Some(known)
    }
}

/// The kernel's types as the library wants them, or why they are not usable; nothing before they are asked for.
#[derive(Debug)]
struct ParsedTypes(Option<Result<Btf, String>>);

impl ParsedTypes {
    /// Parses the file the first time.
    fn get(&mut self, path: &Path) -> Result<&Btf, String> {
        let parse = || {
            Btf::parse_file(path, Endianness::default())
                .map_err(|error| format!("the kernel's type information is not usable: {error}"))
        };
        self.0.get_or_insert_with(parse).as_ref().map_err(Clone::clone)
    }
}

/// Why a program is not wanted beside those that are attached, if so.
pub(super) fn spared(row: &ProgramRow, states: &[RowState]) -> Option<String> {
    let attached =
        || states.iter().filter(|(_, state)| *state == ProgramState::Attached).map(|(row, _)| *row);
    if let Some(equal) = attached().find(|other| row.equals(other)) {
        return Some(format!("{} sees the same", equal.name));
    }
    let other = attached().find(|other| row.unless.contains(&other.name))?;
    Some(format!("{} counts it already", other.name))
}

/// What could not be attached is not lost where its equal is attached.
pub(super) fn settle(states: &mut [RowState]) {
    let equal = |row: &ProgramRow| {
        let mut attached = states.iter().filter(|(_, state)| *state == ProgramState::Attached);
        attached.find(|(other, _)| row.equals(other)).map(|(other, _)| other.name)
    };
    let equals: Vec<_> = states.iter().map(|(row, _)| equal(row)).collect();
    for ((_, state), equal) in states.iter_mut().zip(equals) {
        if let (ProgramState::Absent(_) | ProgramState::Failed(_), Some(equal)) = (&*state, equal) {
            *state = ProgramState::NotChosen(format!("{equal} sees the same"));
        }
    }
}

/// The rows of a table whose state has changed.
pub(super) fn changed(before: &[ProgramStatus], after: Vec<ProgramStatus>) -> Vec<ProgramStatus> {
    let was = |row: &ProgramStatus| before.iter().find(|other| other.program == row.program);
    after.into_iter().filter(|row| was(row).is_none_or(|was| was.state != row.state)).collect()
}

/// What a program that could not be attached is, by how its module stands.
pub(super) fn not_attached(row: &ProgramRow, refused: Refusal, module: Option<Module>) -> ProgramState {
    match (row.attachment, module, row.module) {
        // The library looks for functions among the kernel's own alone. FUSE, the only one with such programs, has
        // parameters, so that it shows when it is built in.
        (Attachment::FunctionEntry, Some(Module::Loaded | Module::Absent), Some(name)) => {
            ProgramState::Absent(format!("{name} is a module here; functions of modules cannot be hooked"))
        }
        (_, Some(Module::Absent), Some(name)) => ProgramState::Waits(format!("for module {name}")),
        _ => match refused {
            Refusal::Absent(reason) => ProgramState::Absent(reason),
            Refusal::Failed(reason) => ProgramState::Failed(reason),
        },
    }
}

fn no_program() -> String {
    "the object has no such program".to_owned()
}

fn module(name: &str) -> Module {
    Module::look(Path::new("/sys"), name)
}

fn fill(map: &'static str, error: &MapError) -> LoadError {
    LoadError::Fill { map, reason: error.to_string() }
}

/// A program that was loaded at an earlier try is loaded.
fn loaded(result: Result<(), ProgramError>) -> Result<(), ProgramError> {
    match result {
        Err(ProgramError::AlreadyLoaded) => Ok(()),
        other => other,
    }
}

/// What a program has learnt, else the own number where it means the same process to the programs.
pub(super) fn known_id(learnt: Option<u32>, own: u32, in_first_namespace: Option<bool>) -> Option<u32> {
    learnt.or_else(|| (in_first_namespace == Some(true)).then_some(own))
}
