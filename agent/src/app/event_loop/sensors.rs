//! What the sources of facts say: taken to the engine, or kept among the facts about the agent.

use agent_core::engine::Input;
use agent_core::observation::{KernelErrors, Op, Source};
use agent_core::topology::MountTable;

use super::EventLoop;
use crate::sensor::{LossCause, SensorEvent, SourceName};
use crate::sys::clock;

/// Whether a file system has told of itself, by whichever source. ext4 says `emergency_ro` in the table after such an
/// error, and wakes nobody who polls it.
fn is_of_file_system(errors: &KernelErrors) -> bool {
    matches!(errors.source, Source::Fanotify | Source::Sysfs) || errors.op == Op::Filesystem
}

impl EventLoop {
    fn take_table(&mut self, table: MountTable) {
        let used = clock::thread_processor_time();
        self.table_seen = true;
        self.take_shows();
        self.sources.table(table.clone());
        self.feed(Input::MountTable(table));
        self.sources.spent(clock::thread_processor_time().saturating_sub(used));
    }

    pub(super) fn take_sensor(&mut self, event: SensorEvent) {
        match event {
            SensorEvent::Table(table) => self.take_table(table),
            SensorEvent::Scan(stats) => self.facts.scan(stats),
            SensorEvent::Kernel(errors) => {
                if is_of_file_system(&errors) {
                    self.sources.refresh();
                }
                if let Some(task) = &errors.task {
                    self.sources.ask_cgroup(task.cgroup);
                }
                self.feed(Input::Kernel(errors));
            }
            SensorEvent::Look(superblocks) => {
                self.sources.refresh();
                for superblock in superblocks {
                    self.feed(Input::Look(superblock));
                }
            }
            SensorEvent::OwnErrors(own) => self.feed(Input::OwnErrors(own)),
            SensorEvent::Instance(superblock, instance) => self.feed(Input::Instance(superblock, instance)),
            SensorEvent::Renewed(superblock, seen) => {
                self.sources.renewed(superblock);
                self.feed(Input::Renewed(superblock, seen));
            }
            SensorEvent::Blocked(census) => {
                for blocked in census.blocked.iter().flat_map(|on| &on.tasks) {
                    self.sources.ask_cgroup(blocked.task.cgroup);
                }
                self.feed(Input::Census(census));
            }
            SensorEvent::Consumers(consumers) => self.feed(Input::Consumers(consumers)),
            SensorEvent::Devices(devices) => self.feed(Input::Devices(devices)),
            SensorEvent::Daemons(daemons) => self.feed(Input::Daemons(daemons)),
            SensorEvent::Cgroups(found) => {
                if self.facts.name_cgroups(found) {
                    self.sources.forget_cgroups();
                }
            }
            SensorEvent::Source(name, state) => {
                if name == SourceName::Bpf {
                    self.sources.confirm();
                }
                let state = self.sources.said(name, state);
                self.facts.source(name, state);
            }
            SensorEvent::Program(status) => self.facts.program(status),
            SensorEvent::Skipped { program, runs } => {
                *self.facts.runs_skipped.entry(program).or_default() += runs;
            }
            SensorEvent::Dropped(cause, count) => {
                *self.facts.records_dropped.entry(cause).or_default() += count;
                if cause == LossCause::Fanotify {
                    self.sources.lost(SourceName::FanotifyFs, &mut self.facts);
                }
            }
            SensorEvent::MountEventsDropped(count) => {
                self.facts.mount_events_dropped += count;
                self.sources.lost(SourceName::FanotifyMnt, &mut self.facts);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_core::errno::Errno;
    use agent_core::id::SuperblockId;
    use agent_core::time::Monotonic;

    use super::*;

    #[test]
    fn a_file_system_that_tells_of_itself_is_a_reason_to_ask_for_its_options_whoever_heard_it() {
        let errors = |source, op| KernelErrors {
            source,
            superblock: SuperblockId { major: 8, minor: 1 },
            root_inode: None,
            errno: Errno(117),
            op,
            count: 1,
            at: Monotonic::default(),
            after: None,
            task: None,
        };
        for source in [Source::Fanotify, Source::Sysfs, Source::Bpf] {
            assert!(is_of_file_system(&errors(source, Op::Filesystem)), "{source:?}");
        }
        assert!(!is_of_file_system(&errors(Source::Bpf, Op::Read)));
    }
}
