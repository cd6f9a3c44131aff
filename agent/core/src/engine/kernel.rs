//! Errors that the kernel counted: whose they are, and what they add up to.

use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

use crate::engine::volume::Volume;
use crate::engine::{Engine, Note, Output};
use crate::errno::{Errno, ErrnoClass};
use crate::health::meaning::class_of;
use crate::health::window::Span;
use crate::id::{SuperblockId, VolumeId};
use crate::observation::{KernelErrors, Op, OwnErrors, Source};
use crate::time::Monotonic;

/// The most tasks that are kept of a volume.
const CULPRITS: usize = 8;
/// Rows of totals for errors that the table of errors does not list. What is more shares a row.
const ODD: usize = 16;

impl Engine {
    /// Counts errors for the volumes they belong to. Errors on a superblock that is no volume's any more (it was
    /// just unmounted) are nobody's.
    pub(super) fn take_errors(&mut self, errors: &KernelErrors, now: Monotonic, outputs: &mut Vec<Output>) {
        let window = self.policy.thresholds.evidence_window;
        for id in self.owners(errors.superblock, errors.root_inode) {
            let is_readonly = errors.errno.class() == Some(ErrnoClass::Readonly);
            let is_shown_readonly = is_readonly && self.is_also_shown_readonly(&id, errors);
            let namespace = self.namespace;
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            let is_elsewhere = is_readonly && volume.writers.note_refusal(errors, namespace, window);
            let is_evidence = !is_shown_readonly && !is_elsewhere;
            volume.count((errors.errno, errors.op, errors.source), errors.count, errors.at.min(now));
            // Programs are refused things all day: who met that explains nothing, and would push out who does.
            let is_refusal = class_of(errors.errno, volume.evidence.class) == Some(ErrnoClass::Refused);
            if let Some(task) = errors.task.as_ref().filter(|_| !is_refusal) {
                let met = (errors.errno, errors.op, errors.source);
                volume.culprits.insert(0, (errors.at, met, task.clone()));
                volume.culprits.truncate(CULPRITS);
            }
            let known = volume.evidence.damage.clone();
            // What may be meant for another mount is no evidence, and still a reason to look.
            if !is_evidence || volume.evidence.hint(errors, Span { now, window }) {
                volume.probes.hint(now, volume.watch.interval, window);
            }
            if volume.evidence.damage != known {
                let text =
                    format!("the file system found damage in itself ({}): it needs a check", errors.errno);
                outputs.push(Output::Note(Note { volume: Some(id.clone()), text }));
            }
            self.touched.insert(id);
        }
    }

    /// Takes how many errors a file system has found in itself. What it found while nobody read its counter, as during
    /// a restart of the agent, is told by nothing else.
    pub(super) fn take_own_errors(&mut self, own: &OwnErrors, now: Monotonic, outputs: &mut Vec<Output>) {
        let mut untold = 0;
        for id in self.owners(own.superblock, None) {
            let Some(volume) = self.volumes.get_mut(&id) else { continue };
            untold = volume.evidence.count_own_errors(own).max(untold);
            self.touched.insert(id);
        }
        if untold > 0 {
            let errors = KernelErrors {
                source: Source::Sysfs,
                superblock: own.superblock,
                root_inode: None,
                errno: own.errno,
                op: Op::Filesystem,
                count: untold,
                at: own.at,
                // While no agent ran nobody acknowledged anything: it is newer than all of that.
                after: None,
                task: None,
            };
            self.take_errors(&errors, now, outputs);
        }
    }

    /// Whether the file system is writable and some mount shows the volume's root read-only: a program that is refused
    /// there means that mount, and the kernel's count does not tell the mounts of one root apart.
    fn is_also_shown_readonly(&self, id: &VolumeId, errors: &KernelErrors) -> bool {
        // What the file system or the cache reports is no refusal of a mount.
        let is_refusal = !matches!(errors.op, Op::Filesystem | Op::Writeback);
        let shown = self.volumes.get(id).and_then(|volume| volume.shown.as_ref());
        let mounts = self.table.iter().flat_map(|table| table.showing(errors.superblock));
        let mut of_root =
            mounts.filter(|mount| shown.is_none_or(|shown| shown.directory() == mount.directory()));
        is_refusal && of_root.any(|mount| mount.options.has("ro") && !mount.super_options.has("ro"))
    }

    /// One volume on the superblock: its own. Several: the one with that root; else those whose root is not known
    /// yet; else all, since the superblock is what gets sick.
    pub(super) fn owners(&self, superblock: SuperblockId, root_inode: Option<u64>) -> Vec<VolumeId> {
        let all = self.by_superblock.get(&superblock).map(Vec::as_slice).unwrap_or_default();
        let Some(root) = root_inode.filter(|root| *root != 0 && all.len() > 1) else {
            return all.to_vec();
        };
        let with = |wanted: Option<u64>| -> Vec<VolumeId> {
            let root_of = |id: &VolumeId| self.volumes.get(id).and_then(|volume| volume.root_inode);
            all.iter().filter(|id| root_of(id) == wanted).cloned().collect()
        };
        let mut owners = with(Some(root));
        if owners.is_empty() {
            owners = with(None);
        }
        if owners.is_empty() { all.to_vec() } else { owners }
    }
}

/// Who was refused to write, and when last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Writers {
    /// Programs in the mount namespace of the table.
    here: Option<Monotonic>,
    /// Programs in others.
    elsewhere: Option<Monotonic>,
}

impl Writers {
    /// Whether these refusals were met in another mount namespace, as far as the records of this time say: the mount
    /// there may be read-only on purpose, which the table does not show, and the counts do not tell whose mount it was.
    fn note_refusal(&mut self, errors: &KernelErrors, own: Option<u32>, window: Duration) -> bool {
        let met_in = errors.task.as_ref().map(|task| task.mnt_ns).filter(|namespace| *namespace != 0);
        let is_recent = |at: Option<Monotonic>| at.is_some_and(|at| errors.at.since(at) < window);
        match (own, met_in) {
            (None, _) => false,
            (Some(own), Some(namespace)) if namespace == own => {
                self.here = self.here.max(Some(errors.at));
                false
            }
            (Some(_), Some(_)) => {
                self.elsewhere = self.elsewhere.max(Some(errors.at));
                true
            }
            (Some(_), None) => is_recent(self.elsewhere) && !is_recent(self.here),
        }
    }
}

impl Volume {
    /// Adds to the totals. Of numbers outside the table only some have a row of their own.
    pub(super) fn count(&mut self, (errno, op, source): (Errno, Op, Source), count: u64, at: Monotonic) {
        if count == 0 {
            return;
        }
        let key = (errno, op, source);
        let is_listed = |errno: Errno| errno.row().is_some() || errno == Errno::UNKNOWN;
        let odd = || self.errors.keys().filter(|(errno, ..)| !is_listed(*errno)).count();
        let has_row = is_listed(errno) || self.errors.contains_key(&key) || odd() < ODD;
        let row = if has_row { key } else { (Errno::OTHER, op, source) };
        let total = self.errors.entry(row).or_default();
        *total = total.saturating_add(count);
        let (first, last) = self.error_times.entry(row).or_insert((at, at));
        (*first, *last) = ((*first).min(at), (*last).max(at));
    }
}
