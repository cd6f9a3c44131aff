//! All that speaks for or against one volume, as it was seen. Nothing is judged here.
//!
//! Evidence belongs to one generation: when another mount appears at the volume's place, it is dropped as a
//! whole, except whether the agent was ever allowed to look.

use core::time::Duration;

use crate::errno::{Errno, ErrnoClass};
use crate::fstype::FsClass;
use crate::health::cause::ReadonlyCause;
use crate::health::claims::{self, Claims};
use crate::health::loss::{Damage, Loss};
use crate::health::meaning::{Meaning, class_of, meaning};
use crate::health::rules::LOST_LOOKS;
use crate::health::table::TableFacts;
use crate::health::window::{Counted, Counter, Group, KernelWindow, Span, speaks_of_storage};
use crate::id::SuperblockId;
use crate::observation::{
    KernelErrors, NotRun, Op, OwnErrors, ProbeOk, ProbeReport, ProbeResult, ProbeStep, Source,
};
use crate::time::Monotonic;
use crate::topology::Mount;
use crate::volume::{Identity, VolumeSpec};

/// What a file system that has shut itself down reports.
pub(crate) const ESHUTDOWN: Errno = Errno(108);
/// What a file system reports that has found its own structures damaged.
const EUCLEAN: Errno = Errno(117);
/// The same, found by a wrong checksum.
///
/// kernel: `EFSBADCRC`, fs/ext4/ext4.h, fs/xfs/xfs_linux.h; the same number in each, in one header since 7.0.
const EBADMSG: Errno = Errno(74);
/// A user, group or project has used up its share.
const EDQUOT: Errno = Errno(122);
/// Interrupted: by a signal to whoever looks.
const EINTR: Errno = Errno(4);
/// No descriptor is left to whoever asks.
const EMFILE: Errno = Errno(24);

/// What is wrong with a sentinel while the root answers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum SentinelFault {
    /// It is not there.
    Missing,
    /// It has other content.
    Differs,
    /// It is not a small regular file on this mount.
    Unusable,
}

impl SentinelFault {
    /// Whether the look that found it tried operations of this group. It ended there: it read at most the sentinel.
    const fn tried(self, group: Group) -> bool {
        match group {
            Group::Attributes | Group::Below => true,
            Group::Data | Group::Faults => matches!(self, Self::Differs),
            Group::Writes => false,
        }
    }
}

/// The last look that said anything about the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Look {
    /// There was none.
    #[default]
    None,
    /// All that was asked for answered.
    Good,
    /// A step failed.
    Failed {
        /// The step.
        step: ProbeStep,
        /// The error.
        errno: Errno,
        /// What it says; `None` for an errno that says nothing certain.
        class: Option<ErrnoClass>,
    },
    /// No answer within the deadline.
    Hung {
        /// The step it hangs in.
        step: ProbeStep,
    },
    /// The path leads to another superblock than the table says.
    OtherMount {
        /// Which.
        found: SuperblockId,
    },
    /// The root answers, the sentinel is not as it should be.
    Sentinel(SentinelFault),
    /// The agent may not look.
    Refused,
}

/// A good look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoodLook {
    /// When it began.
    pub started: Monotonic,
    /// When its answer came.
    pub at: Monotonic,
    /// Whether it read file data past the cache. A block of the device is no file: it answers for no program's read.
    pub read_data: bool,
    /// Whether it read a block of the device: then storage answers, whatever its files do.
    pub read_device: bool,
    /// Whether it wrote.
    pub wrote_data: bool,
}

impl GoodLook {
    /// Whether it tried operations of this group.
    #[must_use]
    pub const fn tried(&self, group: Group) -> bool {
        match group {
            Group::Attributes | Group::Below => true,
            Group::Data | Group::Faults => self.read_data,
            Group::Writes => self.wrote_data,
        }
    }
}

/// Tasks that have waited in one call for longer than the deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// When the last of these waits passed the deadline.
    pub due: Monotonic,
    /// When the census saw them.
    pub seen: Monotonic,
    /// How many tasks wait on the volume, those included that have not waited so long.
    pub count: u64,
    /// Whether one of them waits on this very volume. Where several volumes show one superblock, a task in a directory
    /// that none of them names is shown with each, and is proof for none.
    pub is_here: bool,
}

/// All that speaks for or against one volume.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Evidence {
    /// Errors that others met.
    pub kernel: KernelWindow,
    /// What the table says.
    pub table: TableFacts,
    /// The last look that said anything.
    pub look: Look,
    /// The last good look of this generation.
    pub good: Option<GoodLook>,
    /// Bad looks since then, one after the other.
    pub failures: u32,
    /// Attempts to look that were not possible, one after the other.
    pub lost_looks: u32,
    /// Looks that ended, one after the other, with what may be the agent's own trouble: when the first began, and how
    /// many.
    pub troubles: Option<(Monotonic, u32)>,
    /// When a look at another volume was good last: then the agent was in no trouble.
    pub others_answered: Option<Monotonic>,
    /// Whether the volume ever answered; outlives generations, and the agent.
    pub was_readable: bool,
    /// Whether a write of a probe ever worked; outlives generations.
    pub was_written: bool,
    /// Whether the sentinel in force was ever read; outlives generations.
    pub was_sentinel_read: bool,
    /// Whether a read-only state has its cause in storage.
    pub readonly_cause: ReadonlyCause,
    /// What stands behind the mount: one errno does not say the same of all.
    pub class: FsClass,
    /// When this mount was first seen. Anonymous device numbers are used again: what was lost before is not its.
    pub since: Monotonic,
    /// Dirty data that was lost on this mount.
    pub lost: Option<Loss>,
    /// Damage that the file system found in itself, on this mount. It may work on, and nobody sees more of it.
    pub damage: Option<Damage>,
    /// What the table and the file system itself say against the mount.
    pub claims: Claims,
    /// When the file system reported that it has shut down: it answers from its caches at most until it is mounted
    /// anew, and the table of most file systems never says so.
    pub shutdown: Option<Monotonic>,
    /// Reports of a shutdown from before this moment are settled. Without unique ids in the table a quick unmount
    /// and mount of one device cannot be told from a mount that stayed, so the generation alone does not end them.
    pub shutdown_settled: Monotonic,
    /// When the file system found an error in itself that ended all writing.
    pub writes_ended: Option<Monotonic>,
    /// How many errors the file system has ever found in itself, and which file system said so (`OwnErrors::instance`).
    pub own_errors: Option<(u64, u64)>,
    /// Which file system this is, where something tells those with one number apart; before that is told, which it was
    /// when an earlier run knew it.
    pub instance: Option<u64>,
    /// No look was possible for longer than the deadline, because something else hangs on the same superblock.
    pub overdue: bool,
    /// Tasks that wait too long, as the last census saw it.
    pub waiting: Option<Waiting>,
    /// The last refusal for lack of space.
    pub full: Option<Monotonic>,
    /// What the file system said it is, as far as any look of this generation was told.
    pub found: Identity,
    /// The last completed look was late.
    pub slow: bool,
    /// The agent cannot look from where it stands.
    pub inaccessible: bool,
    /// Whoever looks is somebody whom the mount lets in never, whatever was before.
    pub is_closed: bool,
}

/// What a probe report changed, for the caller that counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// Nothing about the volume.
    Nothing,
    /// A good look.
    Good,
    /// A failed look, to be counted among the errors.
    Error(Errno, Op),
    /// A bad look without an errno.
    Bad,
}

impl Evidence {
    /// Another mount is there: nothing is known about it.
    pub fn reset(&mut self, since: Monotonic) {
        let Self { was_readable, was_written, was_sentinel_read, class, own_errors, .. } = *self;
        *self = Self {
            was_readable,
            was_written,
            was_sentinel_read,
            class,
            own_errors,
            since,
            ..Self::default()
        };
    }

    /// Another superblock is there under the same names. Of what was known only the table's word is kept.
    pub fn renew(&mut self, now: Monotonic) {
        let table = self.table;
        self.reset(now);
        self.table = table;
        claims::take_table(&mut self.claims, &self.table, now);
    }

    /// A plan did its work without another mount appearing: what was seen before it no longer counts. Its mount may
    /// have been too quick for the table, so a reported shutdown is judged anew.
    pub fn forget_looks(&mut self, now: Monotonic) {
        let (table, lost, damage) = (self.table, self.lost.take(), self.damage.take());
        let (shutdown, settled) = (self.shutdown, self.shutdown_settled);
        let claims = core::mem::take(&mut self.claims);
        self.reset(self.since);
        self.table = table;
        self.claims = claims;
        // No repair brings data back that was lost on this mount, and none mends the file system.
        self.lost = lost;
        self.damage = damage;
        self.shutdown = shutdown;
        self.shutdown_settled = settled;
        self.settle_shutdown(now);
    }

    /// What was reported before `until` is over.
    fn settle_shutdown(&mut self, until: Monotonic) {
        self.shutdown_settled = self.shutdown_settled.max(until);
        if self.shutdown.is_some_and(|at| at < until) {
            self.shutdown = None;
            claims::withdraw_shutdown(&mut self.claims);
        }
    }

    /// Takes what the line of the mount says. Says whether that is news.
    pub fn see_table(&mut self, mount: &Mount, spec: Option<&VolumeSpec>, now: Monotonic) -> bool {
        let before = self.table;
        self.table.update(mount, spec, now);
        self.readonly_cause.see_table(self.table.ro, now);
        claims::take_table(&mut self.claims, &self.table, now);
        if before.ro && !self.table.ro {
            // Somebody made it writable again, which the kernel lets happen only where that is possible.
            self.writes_ended = None;
        }
        before != self.table
    }

    /// Takes errors that others met. Says whether they are a reason to look now.
    pub fn hint(&mut self, errors: &KernelErrors, span: Span) -> bool {
        let class = class_of(errors.errno, self.class);
        if errors.op == Op::Writeback && errors.at >= self.since {
            self.lose(errors, class, span.now);
        }
        let is_shutdown = errors.op == Op::Filesystem && errors.errno == ESHUTDOWN;
        // One shutdown is told more than once: by its record, and later by the counter.
        let is_settled = is_shutdown && errors.at < self.shutdown_settled;
        if errors.op == Op::Filesystem && errors.at >= self.since && !is_settled {
            claims::take_report(&mut self.claims, errors, span.now);
        }
        if is_shutdown {
            let is_new = errors.at >= self.since && !is_settled && self.shutdown.is_none();
            if is_new {
                self.shutdown = Some(errors.at);
            }
            return is_new;
        }
        if errors.at >= self.since && self.table.error_ends_writes && is_own_error(errors) {
            self.writes_ended.get_or_insert(errors.at);
        }
        if errors.at >= self.since && self.tells_of_damage(errors) {
            Loss::note(&mut self.damage, errors, span.now);
        }
        if self.may_lack_room(errors) {
            let is_answered = self.good.is_some_and(|good| errors.at <= good.started);
            return errors.at >= self.since && !is_answered && span.now.since(errors.at) < span.window;
        }
        // What happened before this mount was there is about another one.
        let Some(class) = class.filter(|_| errors.at >= self.since) else { return false };
        let kind = (class, Group::of((errors.source, errors.op), errors.errno, class));
        match class {
            // Programs are refused things all day: never evidence.
            ErrnoClass::Refused => false,
            // Which volume has no room left, nobody knows then.
            ErrnoClass::Full if errors.source == Source::BpfName => false,
            ErrnoClass::Full => {
                let answered = self.good.is_some_and(|good| good.wrote_data && errors.at <= good.started);
                if !answered && span.now.since(errors.at) < span.window {
                    self.full = self.full.max(Some(errors.at.min(span.now)));
                }
                false
            }
            ErrnoClass::Readonly if !self.table.should_be_writable() => false,
            ErrnoClass::Stale
            | ErrnoClass::IoError
            | ErrnoClass::Disconnected
            | ErrnoClass::HostDown
            | ErrnoClass::Auth
            | ErrnoClass::Readonly => {
                let counted = Counted {
                    counter: Counter::of(errors.source, errors.op),
                    count: errors.count,
                    process: errors.task.as_ref().map(|task| task.pid),
                };
                let counts = self.kernel.add(kind, errors.at, counted, span);
                if counts && speaks_of_storage((errors.source, errors.op), errors.errno, class) {
                    self.readonly_cause.storage_failed(errors.at.min(span.now));
                }
                counts
            }
        }
    }

    /// Whether a page fault may have failed for lack of room: a store, or anything in memory, where a load takes room as
    /// well. A reason to look; it says nothing of storage.
    ///
    /// kernel: `shmem_fault`, mm/shmem.c, all versions, gives a page to whoever loads from a hole.
    fn may_lack_room(&self, errors: &KernelErrors) -> bool {
        errors.op == Op::Fault && (errors.errno == Errno::UNKNOWN || self.class == FsClass::Memory)
    }

    /// Takes how many errors the file system has found in itself; how many of them nobody has told of.
    pub fn count_own_errors(&mut self, own: &OwnErrors) -> u64 {
        let before = self.own_errors.replace((own.instance, own.count));
        let same = before.filter(|(instance, _)| own.told == 0 && *instance == own.instance);
        let untold = same.map_or(0, |(_, count)| own.count.saturating_sub(count));
        let is_news = (own.told > 0 || untold > 0) && own.at >= self.since;
        if is_news && own.ends_writes && self.table.counts_own_errors {
            self.writes_ended.get_or_insert(own.at);
        }
        untold
    }

    /// Whether the file system speaks of damage in itself. A failed request may succeed when it is made again.
    fn tells_of_damage(&self, errors: &KernelErrors) -> bool {
        let is_counted = errors.source == Source::Sysfs && self.table.counts_own_errors;
        errors.op == Op::Filesystem && (matches!(errors.errno, EUCLEAN | EBADMSG) || is_counted)
    }

    /// Takes a loss of dirty data, whatever refused it: the pages are gone. That a server has no room left, or one user
    /// no quota, is told and is no fault. A file system on a device of its own finds the room before the write
    /// succeeds: there it is the device that has none.
    fn lose(&mut self, errors: &KernelErrors, class: Option<ErrnoClass>, now: Monotonic) {
        match class {
            Some(ErrnoClass::Full) if errors.errno == EDQUOT || self.class != FsClass::Block => {
                claims::take_loss(&mut self.claims, errors, now);
            }
            _ => Loss::note(&mut self.lost, errors, now),
        }
    }

    /// Whether looks, as they go now, try operations of this group.
    #[must_use]
    pub fn looks_try(&self, group: Group) -> bool {
        match self.look {
            Look::Sentinel(fault) => fault.tried(group),
            _ => self.good.is_some_and(|good| good.tried(group)),
        }
    }

    /// Whether looks, as they go now, hear from the root.
    #[must_use]
    pub fn looks_reach_root(&self) -> bool {
        let went_on = matches!(
            self.look,
            Look::Failed { step: ProbeStep::Sentinel | ProbeStep::Device | ProbeStep::Write, .. }
        );
        went_on || self.looks_try(Group::Attributes)
    }

    /// Takes the answer of a probe of this generation.
    pub fn look(&mut self, report: &ProbeReport, slow_after: Duration, now: Monotonic) -> Told {
        self.table.keep_rw(now);
        match &report.result {
            ProbeResult::Ok(ok) => {
                self.slow = report.took > slow_after;
                self.good_look(ok, report.started, now);
                Told::Good
            }
            ProbeResult::Failed { step, errno } => {
                self.slow = report.took > slow_after;
                self.failed_look(*step, *errno, (&ProbeOk::default(), report.started, now))
            }
            ProbeResult::WriteFailed { errno, read } => {
                self.slow = report.took > slow_after;
                self.failed_look(ProbeStep::Write, *errno, (read, report.started, now))
            }
            ProbeResult::WrongMount { found } => {
                self.bad(Look::OtherMount { found: *found });
                Told::Bad
            }
            ProbeResult::SentinelMissing => self.sentinel(SentinelFault::Missing),
            ProbeResult::SentinelDiffers => self.sentinel(SentinelFault::Differs),
            ProbeResult::SentinelUnusable => self.sentinel(SentinelFault::Unusable),
            ProbeResult::TimedOut { step } => {
                self.bad(Look::Hung { step: *step });
                Told::Bad
            }
            ProbeResult::NotRun(NotRun::Unreachable | NotRun::NotThatUser) => self.out_of_reach(),
            ProbeResult::NotRun(NotRun::TooManyAbandoned | NotRun::WorkerLost) => self.lost_look(),
        }
    }

    /// Tasks that wait too long, as long as a census may speak for this moment.
    fn long_waits(&self, span: Span) -> Option<Waiting> {
        self.waiting.filter(|waiting| span.now.since(waiting.seen) < span.window)
    }

    /// Whether the last look read data while the tasks waited already: then storage answers, and does not hang.
    fn look_answers(&self, waiting: Waiting) -> bool {
        let answers = |good: GoodLook| (good.read_data || good.read_device) && good.started >= waiting.due;
        self.look == Look::Good && self.good.is_some_and(answers)
    }

    /// Tasks wait too long, and no look has read data meanwhile.
    #[must_use]
    pub fn waits_unanswered(&self, span: Span) -> bool {
        self.long_waits(span).is_some_and(|waiting| !self.look_answers(waiting))
    }

    /// Tasks wait too long, although a look reads data: it is slow, not hung.
    #[must_use]
    pub fn waits_answered(&self, span: Span) -> bool {
        self.long_waits(span).is_some_and(|waiting| self.look_answers(waiting))
    }

    fn good_look(&mut self, ok: &ProbeOk, started: Monotonic, now: Monotonic) {
        let good = GoodLook {
            started,
            at: now,
            read_data: ok.read_data,
            read_device: ok.read_device,
            wrote_data: ok.wrote_data,
        };
        // A good look after a bad one ends the incident: the errors that others met belonged to it. Changes
        // are the exception, they may fail while everything else works.
        let ends_incident = self.failures > 0;
        for group in Group::ALL {
            if good.tried(group) || (ends_incident && group != Group::Writes) {
                self.kernel.disprove(group, started);
            }
        }
        if good.wrote_data && self.full.is_some_and(|at| at <= started) {
            self.full = None;
        }
        if good.wrote_data && self.writes_ended.is_some_and(|at| at <= started) {
            self.writes_ended = None;
        }
        // A file system that is shut down fails every read and write of a file, cached or not.
        //
        // kernel: `ext4_file_read_iter`, `ext4_file_write_iter`, fs/ext4/file.c, since 4.11; `xfs_file_read_iter`,
        // `xfs_file_write_iter`, fs/xfs/xfs_file.c.
        if good.read_data || good.wrote_data {
            self.settle_shutdown(started);
        }
        // What a look was not told stays as it was known.
        if ok.uuid.is_some() {
            self.found.uuid.clone_from(&ok.uuid);
        }
        if ok.fsid.is_some() {
            self.found.fsid.clone_from(&ok.fsid);
        }
        self.good = Some(good);
        self.look = Look::Good;
        self.answered();
        self.failures = 0;
        self.inaccessible = false;
        self.was_readable = true;
        self.was_written |= ok.wrote_data;
        self.table.was_kept_rw |= ok.wrote_data;
    }

    /// `before`: what the steps before it learnt, and when the look began and ended.
    fn failed_look(
        &mut self,
        step: ProbeStep,
        errno: Errno,
        before: (&ProbeOk, Monotonic, Monotonic),
    ) -> Told {
        let (read, started, now) = before;
        let told = Told::Error(errno, op_of(step));
        match meaning(step, errno, self.class) {
            Meaning::OwnTrouble => {
                if !self.is_its_own_trouble(errno, started) {
                    return self.lost_look();
                }
                let troubles = self.troubles;
                self.bad(Look::Failed { step, errno, class: None });
                self.troubles = troubles;
                told
            }
            // The device node may be missing where the agent runs; after a look that worked, it is news.
            Meaning::NotReachable if step == ProbeStep::Device && self.good.is_some() => {
                self.bad(Look::Failed { step, errno, class: None });
                told
            }
            Meaning::NotReachable => self.out_of_reach(),
            // Everything up to the write answered: good, as far as reading goes.
            Meaning::Class(ErrnoClass::Full) => {
                self.good_look(read, started, now);
                self.full = Some(now);
                told
            }
            Meaning::Class(ErrnoClass::Readonly) if !self.table.should_be_writable() => {
                self.good_look(read, started, now);
                Told::Nothing
            }
            Meaning::Class(ErrnoClass::Refused) if step == ProbeStep::Write && !self.was_written => {
                self.good_look(read, started, now);
                self.inaccessible = true;
                Told::Nothing
            }
            Meaning::Class(class) if self.is_refused_as_ever(class, step) => {
                // It is how this volume always answers, so that it ends a chain of failures.
                self.look = Look::Refused;
                self.answered();
                self.failures = 0;
                self.inaccessible = true;
                Told::Nothing
            }
            // What was readable before and is refused now is news.
            Meaning::Class(ErrnoClass::Refused) => {
                self.bad(Look::Failed { step, errno, class: Some(ErrnoClass::Auth) });
                told
            }
            Meaning::Class(class) => {
                self.bad(Look::Failed { step, errno, class: Some(class) });
                told
            }
            Meaning::Uncertain => {
                self.bad(Look::Failed { step, errno, class: None });
                told
            }
        }
    }

    /// Whether this is a refusal, and no news: of somebody who never had a key, or was never let in. That of a file
    /// that was never read is about whoever made it.
    const fn is_refused_as_ever(&self, class: ErrnoClass, step: ProbeStep) -> bool {
        let is_of_file = matches!(step, ProbeStep::Sentinel) && !self.was_sentinel_read;
        match class {
            ErrnoClass::Refused => !self.was_readable || self.is_closed || is_of_file,
            ErrnoClass::Auth => !self.was_readable,
            _ => false,
        }
    }

    /// Whether it is the volume that answers what the agent in trouble would meet as well: it does so again and again,
    /// while looks at others are good. A worker that holds a handful of descriptors never lacks one.
    fn is_its_own_trouble(&mut self, errno: Errno, started: Monotonic) -> bool {
        let (since, count) = self.troubles.unwrap_or((started, 0));
        let count = count.saturating_add(1);
        self.troubles = Some((since, count));
        let is_alone = errno == EMFILE || self.others_answered.is_some_and(|at| at >= since);
        errno != EINTR && count > LOST_LOOKS && is_alone
    }

    /// A look said something about the volume.
    const fn answered(&mut self) {
        self.lost_looks = 0;
        self.troubles = None;
    }

    /// No look was possible: nothing about the volume.
    fn lost_look(&mut self) -> Told {
        self.lost_looks = self.lost_looks.saturating_add(1);
        Told::Nothing
    }

    /// The way does not lead there. Where it never did, that is how it was before the look before failed.
    fn out_of_reach(&mut self) -> Told {
        self.inaccessible = true;
        if !self.was_readable {
            self.look = Look::None;
            self.failures = 0;
        }
        self.lost_look()
    }

    /// Whether the last look was not let in, as ever: then no look will say that the volume is good.
    #[must_use]
    pub fn is_out_of_sight(&self) -> bool {
        self.look == Look::Refused || (self.inaccessible && !self.was_readable)
    }

    fn bad(&mut self, look: Look) {
        self.look = look;
        self.answered();
        self.failures = self.failures.saturating_add(1);
        self.inaccessible = false;
    }

    fn sentinel(&mut self, fault: SentinelFault) -> Told {
        // The root answered, so this is no link in a chain of failures.
        self.failures = 0;
        self.look = Look::Sentinel(fault);
        self.answered();
        self.inaccessible = false;
        self.was_readable = true;
        Told::Bad
    }
}

/// Whether ext4 speaks of an error in itself. Where a common report exists, it tells of failed reads of files as well,
/// and those are never `EUCLEAN`.
fn is_own_error(errors: &KernelErrors) -> bool {
    errors.op == Op::Filesystem && (errors.source == Source::Sysfs || errors.errno == EUCLEAN)
}

/// The kind of operation that a step is counted as.
#[must_use]
pub const fn op_of(step: ProbeStep) -> Op {
    match step {
        ProbeStep::Identity | ProbeStep::Root => Op::Stat,
        ProbeStep::Sentinel | ProbeStep::Device => Op::Read,
        ProbeStep::Write => Op::Write,
    }
}
