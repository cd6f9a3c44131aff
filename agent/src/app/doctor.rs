//! What works on this host: facts for a running agent's report, and a rehearsal where none runs.

use std::time::Duration;

use tokio::sync::mpsc;

use super::facts::Facts;
use super::permission::{self, Hindrance};
use super::sources::Sources;
use super::{namespace_of, probe_settings};
use crate::config::Config;
use crate::error_chain::chain;
use crate::export::view::doctor::{DoctorReport, HostFacts, MountsView, Privilege};
use crate::kernel::capability::Capability;
use crate::kernel::namespace::Namespace;
use crate::kernel::{KernelSupport, host_view, namespace};
use crate::probe::Pool;
use crate::sensor::{SensorEvent, SourceName, SourceState};

/// A table is read in milliseconds; this is for a busy node.
const TABLE_PATIENCE: Duration = Duration::from_secs(2);

/// What is off without a capability.
const fn needed_for(capability: Capability) -> &'static str {
    match capability {
        Capability::DacReadSearch => "probing what permission bits refuse",
        Capability::SysPtrace => {
            "failed calls on names in containers, consumers of volumes, waiting tasks by procfs, and entering the host's \
             mount namespace from a container"
        }
        Capability::SysAdmin => "repairing mounts, fanotify, entering mount namespaces",
        Capability::SysResource => "kernel programs before Linux 5.11",
        Capability::Perfmon | Capability::Bpf => "kernel programs",
    }
}

/// Facts about the host, gathered once.
pub(super) fn host_facts(hindrance: Option<Hindrance>) -> HostFacts {
    let support = KernelSupport::gather();
    let privileges = Capability::ALL.map(|capability| Privilege {
        name: capability.name().to_owned(),
        held: support.capabilities.is_some_and(|held| held.has(capability)),
        needed_for: needed_for(capability).to_owned(),
        missed: support.misses(capability),
    });
    let mut notes: Vec<String> = hindrance.iter().map(ToString::to_string).collect();
    if support.user_namespace == Some(true) {
        notes.push(
            "this process is in a user namespace: its privileges do not count for the kernel".to_owned(),
        );
    }
    if support.seccomp == Some(true) {
        notes.push("a seccomp filter may refuse system calls of this process".to_owned());
    }
    if let Some(mode) = support.lockdown.filter(|mode| mode != "none") {
        notes.push(format!("the kernel is locked down ({mode})"));
    }
    let node = nix::unistd::gethostname().unwrap_or_default();
    HostFacts {
        node: agent_core::path::escape(node.as_encoded_bytes()),
        kernel_release: support.release,
        architecture: std::env::consts::ARCH.to_owned(),
        privileges: privileges.to_vec(),
        notes,
    }
}

/// Whether what is watched is the host, with everything that is wrong with it.
pub(super) fn host_view(config: &Config, namespace: &Namespace) -> SourceState {
    let defects = host_view::check(config.agent.mount_namespace.as_path(), namespace);
    let texts: Vec<String> = defects.iter().map(ToString::to_string).collect();
    if texts.is_empty() { SourceState::Running } else { SourceState::Off(texts.join("; ")) }
}

/// Names each privilege that is missing, once, with what is off without it.
pub(super) fn warn_of_missing(host: &HostFacts) {
    for privilege in host.privileges.iter().filter(|privilege| privilege.missed) {
        let (missing, off) = (&privilege.name, &privilege.needed_for);
        tracing::warn!(missing, off, "Privilege is missing, continuing without what needs it");
    }
}

/// Tries everything out as an agent would at its start, and lets go of it again.
pub(super) async fn look(config: &Config) -> DoctorReport {
    let mut host = host_facts(permission::hindrance(config));
    let mut facts = Facts::silent();
    let namespace = match namespace_of(config) {
        Ok(namespace) => namespace,
        Err(error) => {
            host.notes.push(chain(&error));
            namespace::own()
        }
    };
    let probes = match Pool::check(&probe_settings(&namespace)).await {
        Ok(()) => SourceState::Running,
        Err(error) => SourceState::Off(chain(&error)),
    };
    facts.source(SourceName::Probes, probes);
    facts.source(SourceName::HostView, host_view(config, &namespace));
    let (events, mut received) = mpsc::channel(super::CHANNEL);
    let mut sources = Sources::start(config, &namespace, &events, &mut facts);
    while !sources.is_started() {
        let ended = sources.ended().await;
        sources.take(ended, &mut facts);
    }
    // The first scan tells whether the mount table can be read. Others may say something before it.
    drop(events);
    let table = async {
        while let Some(event) = received.recv().await {
            match event {
                SensorEvent::Source(name, state) => {
                    let is_unreadable = name == SourceName::Mountinfo && matches!(state, SourceState::Off(_));
                    facts.source(name, state);
                    if is_unreadable {
                        return;
                    }
                }
                // It comes after what a scan says of its source.
                SensorEvent::Scan(stats) => {
                    facts.scan = stats;
                    return;
                }
                _ => {}
            }
        }
    };
    // Without an answer in time the table stays at "not started".
    let _ = tokio::time::timeout(TABLE_PATIENCE, table).await;
    sources.stop();
    let mounts = MountsView::of_scan(facts.scan);
    DoctorReport { mounts, ..DoctorReport::new(&host, &facts.sources, &facts.programs) }
}
