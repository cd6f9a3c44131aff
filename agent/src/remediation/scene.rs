//! What every action of a child starts from: the places of the plan, and the mount table at this moment.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId, VolumeId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::{Holding, is_guard};
use agent_core::remediation::{Marks, Outcome, Refusal};
use agent_core::time::Monotonic;
use agent_core::topology::{Mount, MountTable, Propagation};
use agent_core::volume::Sentinel;

use super::act::tell;
use super::arguments::ArgumentError;
use super::attributes::Former;
use super::helper::{Ended, HelperError};
use super::wire::{Line, Related, Request, Rest, Step};
use crate::sys::look;
use crate::sys::mount;
use crate::sys::mount_table::Proc;
use crate::sys::statmount::MountCalls;

/// No stack of mounts is taken apart further than this.
pub(super) const STACK_LIMIT: usize = 16;

/// Why an action ended early.
#[derive(Debug)]
pub(super) enum Stop {
    Refused(Refusal, String),
    Failed(Errno, String),
    Helper(i32, String),
}

impl Stop {
    /// A system call of ours failed.
    pub(super) fn call(doing: impl Into<String>, errno: rustix::io::Errno) -> Self {
        let doing = doing.into();
        // kernel: `count_mounts`, fs/namespace.c, since 4.9: ENOSPC when /proc/sys/fs/mount-max is reached.
        if errno == rustix::io::Errno::NOSPC {
            return Self::Refused(
                Refusal::MountLimit,
                format!("{doing}: the kernel's limit on mounts is reached"),
            );
        }
        let errno = core_errno(errno);
        Self::Failed(errno, format!("{doing}: {errno}"))
    }

    /// A helper could not be run.
    pub(super) fn helper(shown: &str, error: &HelperError) -> Self {
        let errno = error.io().raw_os_error().and_then(|number| u16::try_from(number).ok()).unwrap_or(5);
        Self::Failed(Errno(errno), format!("{shown}: {error}"))
    }

    /// A helper ran and failed.
    pub(super) fn ended(shown: &str, ended: &Ended) -> Self {
        let how = if ended.code < 0 {
            format!("ended by signal {}", ended.code.unsigned_abs())
        } else {
            format!("ended with code {}", ended.code)
        };
        Self::Helper(ended.code, format!("{shown}: {how}: {}", ended.first_line()))
    }

    pub(super) fn arguments(error: ArgumentError) -> Self {
        Self::Failed(ArgumentError::ERRNO, error.to_string())
    }

    /// The same, with more to be told.
    pub(super) fn and(self, more: &str) -> Self {
        match self {
            Self::Refused(refusal, text) => Self::Refused(refusal, text + more),
            Self::Failed(errno, text) => Self::Failed(errno, text + more),
            Self::Helper(code, text) => Self::Helper(code, text + more),
        }
    }

    pub(super) fn into_step(self) -> Step {
        match self {
            Self::Refused(refusal, text) => Step::new(Outcome::Refused(refusal), text),
            Self::Failed(errno, text) => Step::new(Outcome::Failed(errno), text),
            Self::Helper(code, text) => Step::new(Outcome::HelperFailed(code), text),
        }
    }
}

pub(super) fn core_errno(errno: rustix::io::Errno) -> Errno {
    Errno(u16::try_from(errno.raw_os_error()).unwrap_or(5))
}

/// Tells the executor what comes next, in case it never ends.
pub(super) fn say(what: impl Into<String>) {
    tell(&Line::Progress(what.into()));
}

/// The places of the plan, as they stand in the mount table.
pub(super) struct Scene {
    pub(super) proc: Proc,
    /// When this process is killed.
    pub(super) deadline: Monotonic,
    pub(super) volume: VolumeId,
    pub(super) mountpoint: BytePath,
    /// The same, as it stands in the configuration.
    pub(super) given: BytePath,
    pub(super) stage_root: BytePath,
    pub(super) stage: BytePath,
    pub(super) old: Option<SuperblockId>,
    marks: Option<Marks>,
    dead: Option<BTreeSet<SuperblockId>>,
    pub(super) number_proves_nothing: bool,
    /// An earlier step has looked at what is staged, and it is what it should be.
    pub(super) staged_is_good: bool,
    pub(super) repairs_readonly: bool,
    /// The old mount, where an earlier step took it away.
    pub(super) former: Option<Former>,
    related: Related,
    pub(super) rest: Rest,
    /// What proves the volume, where the plan reads it.
    pub(super) sentinel: Option<Sentinel>,
    /// Old mounts that were detached. Held until the process has answered and ends: the last reference to a
    /// superblock may take for ever to drop, and must not keep the answer.
    held: RefCell<Vec<OwnedFd>>,
}

impl Scene {
    pub(super) fn new(proc: Proc, request: &Request) -> Result<Self, Stop> {
        let given = BytePath::new(request.mountpoint.clone());
        say(format!("resolve the directory of {given}"));
        // A directory that is not there yet leaves the path as it is; the action itself then says so.
        let mountpoint = look::resolve(&proc, &given).unwrap_or_else(|_| given.clone());
        let stage_root = BytePath::new(request.stage_root.clone());
        let stage = BytePath::new(request.stage.clone());
        if stage.is_within(&stage_root) && is_name_in(&stage_root, &stage) {
            let stage_root = look::resolve(&proc, &stage_root).unwrap_or(stage_root);
            let name = stage.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let stage = stage_root.join(name);
            return Ok(Self {
                proc,
                deadline: Monotonic::from_nanos(request.deadline),
                volume: VolumeId::new(request.volume.clone()),
                mountpoint,
                given,
                stage_root,
                stage,
                old: request.old.map(SuperblockId::from_kernel),
                marks: request.marks.clone().map(Marks::from),
                dead: request
                    .dead
                    .clone()
                    .map(|dead| dead.into_iter().map(SuperblockId::from_kernel).collect()),
                number_proves_nothing: request.number_proves_nothing,
                staged_is_good: request.staged_is_good,
                repairs_readonly: request.repairs_readonly,
                former: request.former.clone(),
                related: request.related.clone(),
                rest: request.rest.clone(),
                sentinel: request.sentinel.clone().map(Sentinel::from),
                held: RefCell::default(),
            });
        }
        // Whatever is done at the private place would be done to a place of somebody else.
        Err(Stop::Failed(ArgumentError::ERRNO, format!("{stage} is not directly below {stage_root}")))
    }

    pub(super) fn table(&self) -> Result<MountTable, Stop> {
        self.proc.table().map_err(|errno| Stop::call("read the mount table", errno))
    }

    /// Whether this is the superblock that the plan is to get rid of.
    pub(super) fn is_old(&self, superblock: SuperblockId) -> bool {
        self.old == Some(superblock) && !self.number_proves_nothing
    }

    /// Whether this is another superblock that was replaced because it was sick, and that mounts still show.
    pub(super) fn is_dead(&self, superblock: SuperblockId) -> bool {
        self.dead.as_ref().is_some_and(|dead| dead.contains(&superblock))
    }

    /// Whether the kernel may find for the same source what a new mount is not to show.
    pub(super) fn wants_own_superblock(&self) -> bool {
        self.old.is_some_and(|old| self.is_old(old)) || self.dead.is_some()
    }

    /// What mounts of the old superblock look like.
    pub(super) fn holding(&self) -> Option<&Holding> {
        self.marks.as_ref().map(|marks| &marks.holding)
    }

    /// Whether a mount with the number of the old superblock is of it; `None` where nothing more is known of that. As
    /// long as one of the mounts from when the plan was made is there, nothing else can have the number.
    pub(super) fn proves_old(&self, mount: &Mount) -> Option<bool> {
        let marks = self.marks.as_ref()?;
        let mut calls = MountCalls::own();
        let mut is_there = None;
        for unique in &marks.unique {
            match calls.mount(*unique) {
                Ok(Some(known)) if known.superblock == mount.superblock => return Some(true),
                Ok(_) => is_there = Some(false),
                Err(_) => return Some(marks.holding.fits(mount)),
            }
        }
        is_there.or_else(|| Some(marks.holding.fits(mount)))
    }

    /// How a consumer was related to others when the plan began.
    pub(super) fn propagation_of(&self, mount: &Mount) -> Propagation {
        let known = self.related.get(&mount.id.0);
        known.map_or_else(
            || mount.propagation.clone(),
            |&(shared, master)| Propagation { shared, master, unbindable: mount.propagation.unbindable },
        )
    }

    /// Refuses a mount that only has the number of the old superblock.
    pub(super) fn refuse_another(&self, mount: &Mount) -> Result<(), Stop> {
        if self.is_old(mount.superblock) && self.proves_old(mount) == Some(false) {
            let text =
                format!("number {} at {} is another mount's by now", mount.superblock, mount.mountpoint);
            return Err(Stop::Refused(Refusal::TableChanged, text));
        }
        Ok(())
    }

    /// Whether a mount at the volume's place has to make room: the old superblock, a guard that stands for it, or
    /// what an earlier swap of the agent's left beneath the old one.
    pub(super) fn makes_room(&self, mount: &Mount) -> bool {
        self.is_old(mount.superblock) || is_guard(mount) || self.is_own(mount)
    }

    fn is_own(&self, mount: &Mount) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.own.contains(&mount.id))
    }

    /// Whether what an earlier swap of the agent's left at the place shows this superblock.
    pub(super) fn is_left_beneath(&self, stack: &[Mount], superblock: SuperblockId) -> bool {
        stack.iter().any(|mount| mount.superblock == superblock && self.is_own(mount))
    }

    /// Whether a mount lay at the place beside the old one when the plan was made.
    pub(super) fn was_there(&self, mount: &Mount) -> bool {
        self.marks.as_ref().is_some_and(|marks| marks.others.contains(&mount.id))
    }

    /// The mounts at the path, bottom first. A path with none is looked at twice: while others change the
    /// table, one reading may miss a line.
    pub(super) fn stack(&self, path: &BytePath) -> Result<Vec<Mount>, Stop> {
        for _ in 0..2 {
            let table = self.table()?;
            let stack: Vec<Mount> = table.stack_at(path).into_iter().cloned().collect();
            if !stack.is_empty() {
                return Ok(stack);
            }
        }
        Ok(Vec::new())
    }

    /// Takes whatever is on top at the path out of the tree, without waiting for what the kernel does then.
    pub(super) fn detach_any(&self, path: &BytePath) -> Result<(), Stop> {
        say(format!("detach the top mount at {path}"));
        self.held.borrow_mut().extend(look::hold(path).ok());
        mount::detach(path).map_err(|errno| Stop::call(format!("detach the top mount at {path}"), errno))
    }

    /// The same for this one mount.
    pub(super) fn detach(&self, mount: &Mount) -> Result<(), Stop> {
        let place = &mount.mountpoint;
        say(format!("detach the top mount at {place}"));
        self.keep_top(mount)?;
        mount::detach(place)
            .map_err(|errno| Stop::call(format!("detach the top mount at {place}"), errno))?;
        self.expect_gone(mount)
    }

    /// The top mount's root, to be named by it. `None` where it cannot even be looked at.
    pub(super) fn hold_top(&self, mount: &Mount) -> Result<Option<OwnedFd>, Stop> {
        self.identify(mount)
    }

    /// Keeps the top mount's superblock alive until the process ends. A root that cannot even be looked at is
    /// not kept, and goes all the same.
    pub(super) fn keep_top(&self, mount: &Mount) -> Result<(), Stop> {
        let held = self.identify(mount)?;
        self.held.borrow_mut().extend(held);
        Ok(())
    }

    /// Keeps the top mount's superblock, and with it the superblock's number, until the process ends.
    pub(super) fn pin_top(&self, mount: &Mount) -> Result<(), Stop> {
        let place = &mount.mountpoint;
        let held = look::hold(place).map_err(|errno| Stop::call(format!("hold {place}"), errno))?;
        expect(mount, look::mount_id(&self.proc, &held).ok())?;
        self.keep(held);
        Ok(())
    }

    /// Refuses when another mount is on top. Nothing is kept: a plain unmount would be refused.
    pub(super) fn expect_top(&self, mount: &Mount) -> Result<(), Stop> {
        self.identify(mount).map(drop)
    }

    /// The root of a mount that is on top at its place, and of no other.
    fn identify(&self, mount: &Mount) -> Result<Option<OwnedFd>, Stop> {
        match look::hold(&mount.mountpoint) {
            Ok(held) => {
                expect(mount, look::mount_id(&self.proc, &held).ok())?;
                Ok(Some(held))
            }
            Err(_) => {
                let top = self.stack(&mount.mountpoint)?.pop();
                expect(mount, top.map(|top| top.id))?;
                Ok(None)
            }
        }
    }

    /// The calls that take a mount away take what is on top when they come: whether it was what was meant shows only
    /// after that. What went instead cannot be brought back; nothing more is done at the place.
    ///
    /// kernel: `path_lookupat` with LOOKUP_MOUNTPOINT, fs/namei.c, crosses what is mounted on the place.
    pub(super) fn expect_gone(&self, mount: &Mount) -> Result<(), Stop> {
        let table = self.table()?;
        let is_it = |other: &Mount| other.id == mount.id && other.superblock == mount.superblock;
        if table.stack_at(&mount.mountpoint).into_iter().any(is_it) {
            let text = format!(
                "somebody mounted over {} at that moment, and that mount was taken away instead",
                mount.mountpoint
            );
            return Err(Stop::Refused(Refusal::TableChanged, text));
        }
        Ok(())
    }

    /// Keeps a descriptor until the process ends.
    pub(super) fn keep(&self, descriptor: OwnedFd) {
        self.held.borrow_mut().push(descriptor);
    }
}

/// A reading of the table may have missed the line of a newer mount, and the calls that take one away go by the
/// path alone. So what is really on top is compared by its id; where that cannot be told, nothing is done.
fn expect(mount: &Mount, found: Option<MountId>) -> Result<(), Stop> {
    if found == Some(mount.id) {
        return Ok(());
    }
    let place = &mount.mountpoint;
    let found = found.map_or_else(|| "an unknown mount".to_owned(), |found| format!("mount {}", found.0));
    let text = format!("{found} is on top at {place} instead of {}", mount.id.0);
    Err(Stop::Refused(Refusal::TableChanged, text))
}

/// Whether the path is one plain name below the base.
fn is_name_in(base: &BytePath, path: &BytePath) -> bool {
    let rest = path.as_bytes().strip_prefix(base.as_bytes()).unwrap_or_default();
    let name = rest.strip_prefix(b"/").unwrap_or_default();
    !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_below_the_root_is_a_private_place() {
        let root = BytePath::from("/run/mountie/stage");
        for (path, expected) in [
            ("/run/mountie/stage/7", true),
            ("/run/mountie/stage", false),
            ("/run/mountie/stage/", false),
            ("/run/mountie/stage/..", false),
            ("/run/mountie/stage/7/x", false),
            ("/run/mountie/stage7", false),
            ("/", false),
        ] {
            assert_eq!(is_name_in(&root, &BytePath::from(path)), expected, "{path}");
        }
    }

    #[test]
    fn no_space_from_a_mount_call_is_the_limit_on_mounts() {
        let step = Stop::call("clone", rustix::io::Errno::NOSPC).into_step();
        assert_eq!(step.outcome, Outcome::Refused(Refusal::MountLimit));
        let step = Stop::call("clone", rustix::io::Errno::STALE).into_step();
        assert_eq!((step.outcome, step.text.as_str()), (Outcome::Failed(Errno(116)), "clone: ESTALE"));
    }

    #[test]
    fn another_mount_on_top_is_left_alone() {
        let line = b"31 1 8:1 / /mnt/a rw - ext4 /dev/sda1 rw";
        let mount = crate::sys::mountinfo::parse_line(line).unwrap();
        assert!(expect(&mount, Some(MountId(31))).is_ok());
        for other in [Some(MountId(32)), None] {
            let step = expect(&mount, other).unwrap_err().into_step();
            assert_eq!(step.outcome, Outcome::Refused(Refusal::TableChanged));
        }
    }
}
