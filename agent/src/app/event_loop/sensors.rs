//! What the sources of facts say: taken to the engine, or kept among the facts about the agent.

use agent_core::engine::Input;
use agent_core::observation::Source;
use agent_core::topology::MountTable;

use super::EventLoop;
use crate::sensor::{SensorEvent, SourceName};
use crate::sys::clock;

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
            SensorEvent::Scan(stats) => {
                // A line that stays bad is one bad line, however often it is read.
                self.facts.bad_lines += stats.bad_lines.saturating_sub(self.facts.scan.bad_lines);
                self.facts.scan = stats;
            }
            SensorEvent::Kernel(errors) => {
                // ext4 says `emergency_ro` in the table after such an error, and wakes nobody who polls it.
                if matches!(errors.source, Source::Fanotify | Source::Sysfs) {
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
                self.facts.source(name, state);
            }
            SensorEvent::Program(status) => self.facts.program(status),
            SensorEvent::Skipped { program, runs } => {
                *self.facts.runs_skipped.entry(program).or_default() += runs;
            }
            SensorEvent::Dropped(cause, count) => {
                *self.facts.records_dropped.entry(cause).or_default() += count;
            }
            SensorEvent::MountEventsDropped(count) => self.facts.mount_events_dropped += count,
        }
    }
}
