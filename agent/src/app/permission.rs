//! Whether this process may repair at all, whatever the configuration says.

use std::path::Path;

use agent_core::policy::Policy;
use agent_core::volume::Mode;
use nix::sys::stat::stat;
use thiserror::Error;
use tracing::warn;

use crate::config::Config;
use crate::kernel::KernelSupport;
use crate::kernel::capability::Capability;
use crate::kernel::namespace;

const OWN_NETWORK: &str = "/proc/self/ns/net";

/// What stands in the way of every repair, for as long as this process lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum Hindrance {
    /// It may not mount.
    #[error("repairs need CAP_SYS_ADMIN")]
    NoPrivilege,
    /// It is asked of all, since a file system of the network may be what is mounted next.
    ///
    /// kernel: `alloc_fs_context`, fs/fs_context.c, since 5.1: takes the network namespace of who mounts, and file systems
    /// of the network keep it.
    #[error(
        "repairs need the network of the mounts that are watched: a mount made in another one, such as a pod's, breaks \
         when that one ends (in Kubernetes: hostNetwork)"
    )]
    OtherNetwork,
}

/// A namespace, as the kernel tells them apart: device and inode of its file.
type Number = (u64, u64);

/// Asks the kernel.
pub(super) fn hindrance(config: &Config) -> Option<Hindrance> {
    let held = KernelSupport::gather().capabilities;
    let watched = namespace::network_of(config.agent.mount_namespace.as_path());
    decide(
        held.map(|held| held.has(Capability::SysAdmin)),
        number(Path::new(OWN_NETWORK)),
        watched.as_deref().and_then(number),
    )
}

fn number(namespace: &Path) -> Option<Number> {
    stat(namespace).ok().map(|found| (found.st_dev, found.st_ino))
}

/// What is not known hinders nothing: the kernel refuses what may not be done.
fn decide(may_mount: Option<bool>, own: Option<Number>, watched: Option<Number>) -> Option<Hindrance> {
    if may_mount == Some(false) {
        return Some(Hindrance::NoPrivilege);
    }
    let (own, watched) = (own?, watched?);
    (own != watched).then_some(Hindrance::OtherNetwork)
}

/// The configuration without what this process cannot do: `act` becomes `dry-run` where something is in the way.
pub(super) fn permitted(mut config: Config, hindrance: Option<Hindrance>) -> Config {
    config.policy.node = super::node_number();
    let Some(hindrance) = hindrance else { return config };
    let lowered = lower(&mut config.policy);
    if lowered > 0 {
        warn!(volumes = lowered, why = %hindrance, "Nothing is repaired here by itself, continuing in mode dry-run");
    }
    config
}

/// How many settings were lowered.
fn lower(policy: &mut Policy) -> usize {
    let acting = policy.volumes.iter_mut().map(|volume| &mut volume.watch).chain([&mut policy.defaults]);
    let mut lowered = 0;
    for watch in acting.filter(|watch| watch.mode == Mode::Act) {
        watch.mode = Mode::DryRun;
        lowered += 1;
    }
    lowered
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Option<Number> = Some((4, 1));
    const POD: Option<Number> = Some((4, 2));

    #[test]
    fn a_process_in_the_network_of_the_mounts_may_repair() {
        assert_eq!(decide(Some(true), HOST, HOST), None);
    }

    #[test]
    fn a_pod_with_a_network_of_its_own_repairs_nothing() {
        assert_eq!(decide(Some(true), POD, HOST), Some(Hindrance::OtherNetwork));
        assert_eq!(decide(None, POD, HOST), Some(Hindrance::OtherNetwork));
    }

    #[test]
    fn without_the_privilege_nothing_is_repaired_in_any_network() {
        assert_eq!(decide(Some(false), HOST, HOST), Some(Hindrance::NoPrivilege));
        assert_eq!(decide(Some(false), POD, HOST), Some(Hindrance::NoPrivilege));
    }

    #[test]
    fn what_is_not_known_hinders_nothing() {
        assert_eq!(decide(None, None, None), None);
        assert_eq!(decide(Some(true), HOST, None), None);
    }

    #[test]
    fn act_becomes_dry_run_in_defaults_and_volumes_alone_where_something_is_in_the_way() {
        let text = "[defaults]\nmode = 'act'\n[[volume]]\nname = 'a'\nmountpoint = '/mnt/a'\nsource = 's:/a'\n\
                    fstype = 'nfs4'\nmode = 'act'\n[[volume]]\nname = 'b'\nmountpoint = '/mnt/b'\nsource = 's:/b'\n\
                    fstype = 'nfs4'\nmode = 'observe'\n";
        let config = || Config::from_toml(text).unwrap();
        let modes = |config: Config| {
            let policy = config.policy;
            let volumes = policy.volumes.iter().map(|volume| volume.watch.mode);
            std::iter::once(policy.defaults.mode).chain(volumes).collect::<Vec<_>>()
        };
        assert_eq!(modes(permitted(config(), None)), [Mode::Act, Mode::Act, Mode::Observe]);
        let lowered = permitted(config(), Some(Hindrance::OtherNetwork));
        assert_eq!(modes(lowered), [Mode::DryRun, Mode::DryRun, Mode::Observe]);
    }
}
