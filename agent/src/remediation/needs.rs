//! What the methods of repair need of this node, looked at before anything is repaired, by `check-config` and `doctor`.
//! Nothing here is for the agent itself: it reads files and may wait.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use agent_core::path::BytePath;
use agent_core::volume::{Method, Mode, VolumeSpec};

use super::environment::defect;
use super::fstab;

/// Where systemd says that it runs (`sd_booted`, systemd).
const BOOTED: &str = "run/systemd/system";
/// Where units are installed, generated and made at run time (systemd.unit(5)).
const UNIT_FOLDERS: [&str; 13] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/system.attached",
    "run/systemd/generator",
    "run/systemd/generator.early",
    "run/systemd/generator.late",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// The root directory of the mount namespace behind a file. `None` where it cannot be reached without entering the
/// namespace: the file is of no process.
#[must_use]
pub fn root_of(namespace: &Path) -> Option<PathBuf> {
    let process = namespace.to_str()?.strip_suffix("/ns/mnt").filter(|process| !process.is_empty())?;
    Some(Path::new(process).join("root"))
}

/// What stands in the way of repairing this volume, one sentence each. `root`: see [`root_of`]; without it nothing is
/// said of what lies there.
#[must_use]
pub fn missing(spec: &VolumeSpec, root: Option<&Path>) -> Vec<String> {
    if !matches!(spec.watch.mode, Mode::Act | Mode::DryRun) {
        return Vec::new();
    }
    let method = match (&spec.repair.method, root) {
        (Method::Fstab, Some(root)) => fstab_defect(&spec.mountpoint, root),
        (Method::Systemd(unit), Some(root)) => unit_defect(unit, root),
        (Method::Fstab | Method::Systemd(_), None) | (Method::Mount | Method::Command(_), _) => None,
    };
    let file = spec.repair.environment_file.as_ref().and_then(file_defect);
    method.into_iter().chain(file).collect()
}

fn fstab_defect(mountpoint: &BytePath, root: &Path) -> Option<String> {
    let file = root.join(fstab::FILE.trim_start_matches('/'));
    match std::fs::read(&file) {
        Ok(text) => fstab::find(&text, &[mountpoint])
            .err()
            .map(|error| format!("method \"fstab\": {error}; add the entry, or use another method")),
        Err(error) if is_hidden(&error) => None,
        Err(error) => Some(format!("method \"fstab\": {} cannot be read: {error}", file.display())),
    }
}

fn unit_defect(unit: &str, root: &Path) -> Option<String> {
    match std::fs::metadata(root.join(BOOTED)) {
        Ok(found) if found.is_dir() => {}
        Err(error) if is_hidden(&error) => return None,
        Ok(_) | Err(_) => {
            return Some("method \"systemd\": systemd does not run here; use another method".to_owned());
        }
    }
    // An instance is made from its template.
    let template = unit.split_once('@').and_then(|(name, rest)| {
        let suffix = rest.rsplit_once('.').map(|(_, suffix)| suffix)?;
        Some(format!("{name}@.{suffix}"))
    });
    let has = |folder: &str, name: &str| root.join(folder).join(name).symlink_metadata().is_ok();
    let is_there = |name: &str| UNIT_FOLDERS.iter().any(|folder| has(folder, name));
    let is_known = is_there(unit) || template.as_deref().is_some_and(is_there);
    (!is_known).then(|| {
        format!(
            "method \"systemd\": there is no unit {unit}; write unit = \"…\" with the unit that mounts, or add an entry to /etc/fstab and run systemctl daemon-reload"
        )
    })
}

/// Whoever checks a configuration may not look at the node: nothing can be said of it then.
fn is_hidden(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::PermissionDenied
}

fn file_defect(path: &BytePath) -> Option<String> {
    match std::fs::metadata(std::ffi::OsStr::from_bytes(path.as_bytes())) {
        Ok(metadata) => defect(path, &metadata),
        Err(error) => Some(format!("the environment file {path} cannot be looked at: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::id::VolumeId;
    use agent_core::volume::{Identity, Repair, Watch};

    fn spec(method: Method) -> VolumeSpec {
        VolumeSpec {
            id: VolumeId::new("v"),
            mountpoint: "/mnt/v".into(),
            source: None,
            fstype: None,
            options: Vec::new(),
            watch: Watch { mode: Mode::Act, ..Watch::default() },
            sentinel: None,
            write_probe: false,
            identity: Identity::default(),
            repair: Repair { method, ..Repair::default() },
        }
    }

    #[test]
    fn the_root_of_a_namespace_is_its_processes() {
        let of = |path: &str| root_of(Path::new(path));
        assert_eq!(of("/proc/1/ns/mnt"), Some("/proc/1/root".into()));
        assert_eq!(of("/host/proc/7/ns/mnt"), Some("/host/proc/7/root".into()));
        assert_eq!(["/run/namespaces/pod", "/ns/mnt", "/proc/1/ns/pid"].map(of), [None, None, None]);
    }

    #[test]
    fn a_mount_point_without_an_entry_is_named() {
        let root = tempfile::tempdir().unwrap();
        let told = || missing(&spec(Method::Fstab), Some(root.path())).join("; ");
        assert!(told().contains("fstab cannot be read"), "{}", told());
        std::fs::create_dir(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/fstab"), "UUID=1 /mnt/w ext4\n").unwrap();
        assert!(told().contains("/etc/fstab has no entry for /mnt/v; add"), "{}", told());
        std::fs::write(root.path().join("etc/fstab"), "UUID=1 /mnt/v ext4\n").unwrap();
        assert_eq!(told(), "");
    }

    #[test]
    fn a_unit_must_be_there_and_systemd_too() {
        let root = tempfile::tempdir().unwrap();
        let told =
            |unit: &str| missing(&spec(Method::Systemd(unit.to_owned())), Some(root.path())).join("; ");
        assert!(told("mnt-v.mount").contains("does not run here"));
        std::fs::create_dir_all(root.path().join(BOOTED)).unwrap();
        assert!(told("mnt-v.mount").contains("there is no unit mnt-v.mount"));
        std::fs::create_dir_all(root.path().join("run/systemd/generator")).unwrap();
        std::fs::write(root.path().join("run/systemd/generator/mnt-v.mount"), "").unwrap();
        assert_eq!(told("mnt-v.mount"), "");
        std::fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
        std::fs::write(root.path().join("etc/systemd/system/rclone@.service"), "").unwrap();
        assert_eq!(told("rclone@v.service"), "");
    }

    #[test]
    fn what_is_only_watched_needs_nothing() {
        let mut spec = spec(Method::Fstab);
        spec.watch.mode = Mode::Observe;
        spec.repair.environment_file = Some("/nonexistent/env".into());
        let nowhere = Some(Path::new("/nonexistent"));
        assert_eq!(missing(&spec, nowhere), Vec::<String>::new());
        spec.watch.mode = Mode::DryRun;
        assert_eq!((missing(&spec, nowhere).len(), missing(&spec, None).len()), (2, 1));
    }
}
