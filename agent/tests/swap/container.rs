//! A container: a mount namespace of its own with binds of the volume, and a program in it that never rests.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use agent_core::topology::Mount;

use super::lab::{Lab, Namespace, run, text, unmount, wait_for};

/// The volume as a container has it.
pub(crate) struct Container {
    pub(crate) namespace: Namespace,
    /// A bind of the whole.
    pub(crate) data: PathBuf,
    /// A bind of the whole that nobody may write to.
    pub(crate) readonly: PathBuf,
    /// A bind of a directory in it.
    pub(crate) inner: PathBuf,
}

impl Container {
    /// The volume must be mounted and have a directory `inner`.
    pub(crate) fn new(lab: &Lab) -> Self {
        let namespace = Namespace::new("private");
        let place = |name: &str| lab.directory(&format!("container/{name}"));
        let (data, readonly, inner) = (place("data"), place("readonly"), place("inner"));
        let volume = text(&lab.mountpoint);
        namespace.run(&["mount", "--bind", volume, text(&data)]);
        namespace.run(&["mount", "--bind", volume, text(&readonly)]);
        namespace.run(&["mount", "-o", "remount,bind,ro,nosuid,noatime", text(&readonly)]);
        namespace.run(&["mount", "--bind", &format!("{volume}/inner"), text(&inner)]);
        Self { namespace, data, readonly, inner }
    }

    /// All places of the volume in it, the one that came with the namespace included.
    pub(crate) fn places(&self, lab: &Lab) -> [PathBuf; 4] {
        [lab.mountpoint.clone(), self.data.clone(), self.readonly.clone(), self.inner.clone()]
    }

    pub(crate) fn stacks(&self, lab: &Lab) -> Vec<Vec<Mount>> {
        self.places(lab).iter().map(|place| self.namespace.stack_at(place)).collect()
    }

    /// Everywhere one deep and the volume's own superblock, with the options and the roots of before.
    pub(crate) fn assert_follows(&self, lab: &Lab, before: &[Vec<Mount>]) {
        let superblock = lab.top().unwrap().superblock;
        for (now, before) in self.stacks(lab).iter().zip(before) {
            assert_eq!(now.len(), 1, "{now:#?}");
            assert_eq!(now[0].superblock, superblock, "{now:#?}");
            assert_eq!((&now[0].options, &now[0].root), (&before[0].options, &before[0].root));
        }
        let number = |place: &Path| self.namespace.run(&["stat", "-c", "%d", text(place)]);
        let here = super::lab::run(&["stat", "-c", "%d", text(&lab.mountpoint)]);
        for place in self.places(lab) {
            assert_eq!(number(&place), here, "{}", place.display());
        }
        let refused = format!("! touch {}/x 2>/dev/null", text(&self.readonly));
        self.namespace.run(&["sh", "-c", &refused]);
    }
}

/// What a program finds in a directory, over and over.
pub(crate) struct Hammer {
    child: Child,
    stop: PathBuf,
}

impl Hammer {
    /// Starts one at a place of a namespace, or of this one.
    pub(crate) fn start(lab: &Lab, namespace: Option<&Namespace>, place: &Path, mode: &str) -> Self {
        let number = std::fs::read_dir(&lab.directory).unwrap().count();
        let stop = lab.directory.join(format!("stop-{number}"));
        let exe = std::env::current_exe().unwrap();
        let ready = stop.with_extension("ready");
        let argv = [text(&exe), "hammer", mode, text(place), text(&stop)];
        let argv = match namespace {
            Some(namespace) => namespace.command(&argv),
            None => argv.map(str::to_owned).to_vec(),
        };
        let child = Command::new(&argv[0]).args(&argv[1..]).stdout(Stdio::piped()).spawn().unwrap();
        wait_for("the hammer swings", || ready.symlink_metadata().is_ok());
        Self { child, stop }
    }

    /// Ends it: what went well, and what went wrong.
    pub(crate) fn stop(self) -> (u64, u64) {
        std::fs::write(&self.stop, "").unwrap();
        let said = self.child.wait_with_output().unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().unwrap()).collect();
        (numbers[0], numbers[1])
    }
}

/// The program itself: `hammer MODE PLACE STOP`. The bare directory has a file `bare` in it.
pub(crate) fn hammer() -> ExitCode {
    let [mode, place, stop] = [2, 3, 4].map(|at| std::env::args().nth(at).unwrap());
    let (place, stop) = (Path::new(&place), Path::new(&stop));
    std::fs::write(stop.with_extension("ready"), "").unwrap();
    let (mut good, mut bad) = (0_u64, 0_u64);
    // A test that was killed tells nobody to stop.
    let parent = nix::unistd::getppid();
    while stop.symlink_metadata().is_err() && nix::unistd::getppid() == parent {
        let is_bare = place.join("bare").symlink_metadata().is_ok();
        let is_good = match mode.as_str() {
            "write" => {
                let reads = std::fs::read(place.join("file")).is_ok_and(|content| !content.is_empty());
                let writes = std::fs::write(place.join("made"), "x").is_ok();
                reads && writes
            }
            // Whatever else may be wrong with it meanwhile, it is never written to.
            "readonly" => std::fs::write(place.join("intruder"), "x")
                .is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem),
            // The volume may be away; the bare directory is not there instead.
            _ => std::fs::write(place.join("made"), "x").is_ok() || !is_bare,
        };
        if is_good && !is_bare { good += 1 } else { bad += 1 }
    }
    println!("{good} {bad}");
    ExitCode::SUCCESS
}

/// Marks the directories that no program may meet, before anything is mounted on them.
pub(crate) fn mark(lab: &Lab) -> Vec<PathBuf> {
    let places = ["volume", "container/data", "container/readonly", "container/inner"];
    let places: Vec<PathBuf> = places.iter().map(|place| lab.directory(place)).collect();
    for place in &places {
        std::fs::write(place.join("bare"), "").unwrap();
    }
    places
}

/// Nothing was written into any of them.
pub(crate) fn assert_bare(places: &[PathBuf]) {
    let below = Path::new("/mnt/below");
    std::fs::create_dir_all(below).unwrap();
    run(&["mount", "--bind", "/mnt", text(below)]);
    for place in places {
        let place = below.join(place.strip_prefix("/mnt").unwrap());
        let names: Vec<_> =
            std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["bare"], "{}", place.display());
    }
    unmount(below);
}
