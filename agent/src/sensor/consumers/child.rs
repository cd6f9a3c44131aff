//! The disposable child that looks through all mount namespaces and all open files. It reads procfs alone, and of that
//! only what takes no lock that a stuck process may hold: links, mount tables, and what stands about a descriptor.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::time::Duration;

use agent_core::consumer::Dead;
use agent_core::id::{MountId, SuperblockId};
use agent_core::path::BytePath;
use agent_core::remediation::consumers::{Kind, Wanted};
use agent_core::topology::Mount;
use agent_core::volume::Reach;
use rustix::fs::{Dir, Mode, OFlags, openat, readlinkat};

use super::wire::{Answer, WireDead, WireFound, WireHolder, WireMount};
use crate::exit_code::ExitCode;
use crate::sys::look::mount_of;
use crate::sys::mount_table::Proc;
use crate::sys::mountinfo::{parse_line, parse_place};
use crate::sys::{self, clock};

/// The most mounts and processes that are told of one file system. All are counted.
const TOLD: usize = 16;
/// So many are looked at again after the look.
const WITNESSES: usize = 8;
/// Open files are looked at for no longer than this.
const FILES_FOR: Duration = Duration::from_secs(5);

/// The body of the hidden subcommand.
#[must_use]
pub fn run_consumers_child(parent: u32) -> ExitCode {
    sys::descriptors::close_inherited();
    if !sys::parent_death::follow(parent).unwrap_or(false) {
        return ExitCode::Internal;
    }
    let mut text = Vec::new();
    let asked = std::io::stdin().lock().read_to_end(&mut text).ok();
    let asked = asked.and_then(|_| serde_json::from_slice::<Vec<WireDead>>(&text).ok());
    let (Some(asked), Ok(proc)) = (asked, Proc::open()) else { return ExitCode::Internal };
    let dead: Vec<Dead> = asked.into_iter().map(Dead::from).collect();
    let used = clock::thread_processor_time();
    let mut answer = look(&proc, &dead);
    let cost = clock::thread_processor_time().saturating_sub(used);
    answer.micros = u64::try_from(cost.as_micros()).unwrap_or(u64::MAX);
    let said = serde_json::to_vec(&answer).ok().map(|text| std::io::stdout().lock().write_all(&text));
    if matches!(said, Some(Ok(()))) { ExitCode::Ok } else { ExitCode::Internal }
}

/// Looks once.
pub(super) fn look(proc: &Proc, dead: &[Dead]) -> Answer {
    let mut found: Vec<WireFound> = dead.iter().map(|_| WireFound::default()).collect();
    let mut witnesses: Vec<Vec<Witness>> = dead.iter().map(|_| Vec::new()).collect();
    let mut known = Known::of(dead);
    for namespace in proc.namespaces() {
        let Ok(text) = proc.text_of_table(namespace.process) else { continue };
        let (mut comm, mut is_foreign) = (None, None);
        for line in text.split(|byte| *byte == b'\n') {
            let Ok(place) = parse_place(line) else { continue };
            known.see(place.id, place.superblock);
            if !known.may_concern(place.superblock) {
                continue;
            }
            let Ok(mount) = parse_line(line) else { continue };
            let each = found.iter_mut().zip(&mut witnesses).zip(dead);
            for ((found, witnesses), dead) in each.filter(|(_, dead)| is_of(dead, &mount)) {
                // Whoever made such a namespace can mount there what only calls itself a guard.
                let mut is_foreign = || *is_foreign.get_or_insert_with(|| proc.is_foreign(namespace));
                if dead.holding.is_none() && is_foreign() {
                    continue;
                }
                found.mounts += 1;
                found.ids.insert(mount.id.0);
                known.learn(mount.id, dead);
                if dead.knows(mount.id) && witnesses.len() < WITNESSES {
                    witnesses.push(Witness { process: namespace.process, id: mount.id });
                }
                if found.shown.len() < TOLD {
                    let comm = comm.get_or_insert_with(|| proc.comm(namespace.process)).clone();
                    found.shown.push(WireMount {
                        namespace: namespace.number,
                        process: namespace.process,
                        comm,
                        mountpoint: mount.mountpoint.as_bytes().to_vec(),
                        root: shown_by(dead, &mount).as_bytes().to_vec(),
                    });
                }
            }
        }
    }
    for ((found, witnesses), dead) in found.iter_mut().zip(&witnesses).zip(dead) {
        if dead.holding.is_none() || witnesses.iter().any(|witness| witness.is_there(proc, dead.superblock)) {
            continue;
        }
        found.ids.iter().for_each(|id| known.forget(MountId(*id)));
        *found = WireFound::default();
    }
    let files = Files::count(proc, &known);
    for (found, dead) in found.iter_mut().zip(dead).filter(|(_, dead)| dead.holding.is_some()) {
        files.tell(dead.superblock, proc, found);
        let of_it = known.ids.iter().filter(|(_, superblock)| **superblock == dead.superblock);
        // What was not looked at may be held.
        let is_unsure = files.is_partial || files.refused > 0;
        let held = of_it.filter(|(id, _)| is_unsure || files.through.contains(id));
        found.ids.extend(held.map(|(id, _)| id.0));
    }
    Answer { found, refused: files.refused, is_partial: files.is_partial, micros: 0 }
}

/// A mount of the old file system that was known before the look and seen in it. Where it is there after the look as
/// well, nothing else had its superblock's number meanwhile, and all that was found with this number is of it.
struct Witness {
    process: u32,
    id: MountId,
}

impl Witness {
    fn is_there(&self, proc: &Proc, superblock: SuperblockId) -> bool {
        let text = proc.text_of_table(self.process).unwrap_or_default();
        let mut places = text.split(|byte| *byte == b'\n').filter_map(|line| parse_place(line).ok());
        places.any(|place| place.id == self.id && place.superblock == superblock)
    }
}

fn shown_by(dead: &Dead, mount: &Mount) -> BytePath {
    let holding = dead.holding.as_ref();
    holding.map_or_else(|| mount.root.clone(), |holding| holding.directory_of(mount))
}

/// Whether a mount is of what is asked about: of the file system itself, or one of the volume's guards.
fn is_of(dead: &Dead, mount: &Mount) -> bool {
    let old = dead.holding.as_ref().map(|holding| (dead.superblock, holding));
    let wanted = Wanted { volume: &dead.volume, old, ids: None, reach: Reach::All, own: &[] };
    let meant = if old.is_some() { Kind::Old } else { Kind::Guard };
    wanted.kind(mount) == Some(meant)
}

/// Which mount, by its id, is of which file system.
struct Known {
    superblocks: BTreeSet<SuperblockId>,
    has_guards: bool,
    ids: BTreeMap<MountId, SuperblockId>,
    /// Ids of mounts that are in no table.
    gone: BTreeSet<MountId>,
}

impl Known {
    fn of(dead: &[Dead]) -> Self {
        let held = || dead.iter().filter(|dead| dead.holding.is_some());
        let ids = held().flat_map(|dead| dead.ids.iter().map(|id| (*id, dead.superblock)));
        Self {
            superblocks: held().map(|dead| dead.superblock).collect(),
            has_guards: dead.iter().any(|dead| dead.holding.is_none()),
            ids: ids.collect(),
            gone: held().flat_map(|dead| dead.gone.iter().copied()).collect(),
        }
    }

    /// An id of a mount that is gone may be another mount's by now.
    fn see(&mut self, id: MountId, superblock: SuperblockId) {
        if self.gone.contains(&id) || self.ids.get(&id).is_some_and(|known| *known != superblock) {
            self.ids.remove(&id);
        }
    }

    fn forget(&mut self, id: MountId) {
        self.ids.remove(&id);
    }

    fn learn(&mut self, id: MountId, dead: &Dead) {
        if dead.holding.is_some() {
            self.ids.insert(id, dead.superblock);
        }
    }

    fn may_concern(&self, superblock: SuperblockId) -> bool {
        // A guard is a tmpfs, which has no device.
        self.superblocks.contains(&superblock) || (self.has_guards && superblock.major == 0)
    }
}

/// Open files, by file system and process.
#[derive(Default)]
struct Files {
    held: BTreeMap<SuperblockId, BTreeMap<u32, (u64, Vec<u8>)>>,
    /// The mounts through which they were opened.
    through: BTreeSet<MountId>,
    refused: u64,
    is_partial: bool,
}

impl Files {
    fn count(proc: &Proc, known: &Known) -> Self {
        let mut files = Self::default();
        if known.ids.is_empty() {
            return files;
        }
        let begun = clock::now();
        for process in proc.processes() {
            if clock::now().since(begun) >= FILES_FOR {
                files.is_partial = true;
                break;
            }
            files.count_process(proc, process, known);
        }
        files
    }

    fn count_process(&mut self, proc: &Proc, process: u32, known: &Known) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat(proc.directory(), format!("{process}/fd"), flags, Mode::empty());
        let entries = match directory.and_then(Dir::new) {
            Ok(entries) => entries,
            Err(errno) => {
                self.refused += u64::from(errno == rustix::io::Errno::ACCESS);
                return;
            }
        };
        for entry in entries.filter_map(Result::ok) {
            let Some(number) = entry.file_name().to_str().ok().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            // Most descriptors are pipes and sockets, which have no mount to ask for.
            let link = readlinkat(proc.directory(), format!("{process}/fd/{number}"), Vec::new());
            let Some(path) =
                link.ok().map(std::ffi::CString::into_bytes).filter(|path| path.starts_with(b"/"))
            else {
                continue;
            };
            let about = proc.text_of(&format!("{process}/fdinfo/{number}"));
            let Some(id) = about.ok().as_deref().and_then(mount_of) else { continue };
            let Some(superblock) = known.ids.get(&id) else { continue };
            self.through.insert(id);
            let holders = self.held.entry(*superblock).or_default();
            holders.entry(process).or_insert((0, path)).0 += 1;
        }
    }

    fn tell(&self, superblock: SuperblockId, proc: &Proc, found: &mut WireFound) {
        let Some(holders) = self.held.get(&superblock) else { return };
        let mut most: Vec<(&u32, &(u64, Vec<u8>))> = holders.iter().collect();
        most.sort_by_key(|(process, (count, _))| (std::cmp::Reverse(*count), **process));
        found.files = holders.values().map(|(count, _)| count).sum();
        let told = most.into_iter().take(TOLD).map(|(process, (count, path))| WireHolder {
            process: *process,
            comm: proc.comm(*process),
            count: *count,
            path: path.clone(),
        });
        found.holders = told.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn superblock(minor: u32) -> SuperblockId {
        SuperblockId { major: 0, minor }
    }

    fn dead(minor: u32, ids: &[u32]) -> Dead {
        Dead {
            volume: agent_core::id::VolumeId::new("v"),
            superblock: superblock(minor),
            holding: Some(agent_core::remediation::consumers::Holding {
                root: "/".into(),
                fstype: "nfs4".to_owned(),
                source: Vec::new(),
            }),
            ids: ids.iter().copied().map(MountId).collect(),
            gone: BTreeSet::new(),
            is_shown: false,
        }
    }

    /// A look for the superblock of the root directory, as if it had been replaced.
    fn look_at_root(ids: &[u32], gone: &[u32]) -> WireFound {
        let proc = Proc::open().unwrap();
        let text = proc.text_of_table(std::process::id()).unwrap();
        let mut lines = text.split(|byte| *byte == b'\n').filter_map(|line| parse_line(line).ok());
        let root = lines.rfind(|mount| mount.mountpoint == "/".into()).unwrap();
        let holding = Some(agent_core::remediation::consumers::Holding::of(&root));
        let own = |ids: &[u32]| ids.iter().map(|id| if *id == 0 { root.id } else { MountId(*id) }).collect();
        let dead =
            Dead { superblock: root.superblock, holding, ids: own(ids), gone: own(gone), ..dead(0, &[]) };
        look(&proc, &[dead]).found.remove(0)
    }

    #[test]
    fn a_number_that_may_be_used_again_counts_only_beside_a_mount_that_has_kept_it() {
        assert!(look_at_root(&[0], &[]).mounts > 0);
        assert_eq!(look_at_root(&[u32::MAX], &[]).mounts, 0, "nothing known is there");
        assert_eq!(look_at_root(&[0], &[0]).mounts, 0, "what has its number now is another mount");
        let gone = Dead { gone: BTreeSet::from([MountId(61)]), ..dead(7, &[61]) };
        let mut known = Known::of(std::slice::from_ref(&gone));
        assert_eq!(known.ids.len(), 1, "files may be open on it");
        known.see(MountId(61), superblock(7));
        assert!(known.ids.is_empty());
    }

    #[test]
    fn a_descriptor_names_its_mount() {
        assert_eq!(mount_of(b"pos:\t0\nflags:\t0100000\nmnt_id:\t58\nino:\t90\n"), Some(MountId(58)));
        assert_eq!(mount_of(b"pos:\t0\nmnt_id:\tx\n"), None);
        assert_eq!(mount_of(b""), None);
    }

    #[test]
    fn an_id_that_is_another_mounts_by_now_is_forgotten() {
        let mut known = Known::of(&[dead(7, &[50, 51]), dead(8, &[52])]);
        known.see(MountId(50), superblock(7));
        known.see(MountId(51), superblock(9));
        assert_eq!(known.ids.keys().copied().collect::<Vec<_>>(), [50, 52].map(MountId));
        assert!(known.may_concern(superblock(8)) && !known.may_concern(superblock(9)));
        let guards = Known::of(&[Dead { holding: None, ..dead(7, &[50]) }]);
        assert!(guards.ids.is_empty() && guards.may_concern(superblock(9)));
    }

    #[test]
    fn an_open_file_is_found_by_the_mount_that_it_was_opened_through() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let proc = Proc::open().unwrap();
        let held = sys::look::hold(&file.path().to_str().unwrap().into()).unwrap();
        let id = sys::look::mount_id(&proc, &held).unwrap();
        let answer = look(&proc, &[dead(u32::MAX >> 12, &[id.0])]);
        // The table shows that the id is another file system's.
        assert_eq!((answer.found[0].mounts, answer.found[0].files), (0, 0));
        let mut known = Known::of(&[]);
        known.ids.insert(id, superblock(7));
        let mut files = Files::default();
        files.count_process(&proc, std::process::id(), &known);
        let mut found = WireFound::default();
        files.tell(superblock(7), &proc, &mut found);
        assert!(found.files >= 1 && found.holders[0].process == std::process::id(), "{found:?}");
    }
}
