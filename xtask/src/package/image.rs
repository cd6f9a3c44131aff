//! The container image: one static program, built without a daemon, looked into, and run.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::{OWN_NAMESPACES, Scene, Step, binary, licences};
use crate::command::root;
use crate::quietly::quiet;
use crate::setup::{Package, ensure_installed};

const KIND: &str = "image";

pub(super) const STEPS: &[Step] = &[
    Step { kind: KIND, name: "hadolint", run: lint },
    Step { kind: KIND, name: "buildah", run: build },
    Step { kind: KIND, name: "what is in it", run: look_into },
    Step { kind: KIND, name: "runs beside a volume that breaks", run: live },
];

const BUILDER: &[Package] = &[Package { name: "buildah", program: "buildah" }];
const READERS: &[Package] =
    &[Package { name: "skopeo", program: "skopeo" }, Package { name: "umoci", program: "umoci" }];
const RUNNER: &[Package] =
    &[Package { name: "runc", program: "runc" }, Package { name: "bindfs", program: "bindfs" }];

/// Mount points that a runtime needs in a root that it cannot write.
const PLACES: [&str; 7] = ["dev", "proc", "sys", "etc/mountie", "run/mountie", "var/lib/mountie", "tmp"];
/// Where the program is.
const PROGRAM: &str = "usr/bin/mountie";
/// Files that are no program.
const DOCUMENTS: &str = "usr/share/doc/mountie";
/// An image may be this large.
const SIZE_MAX: u64 = 32 << 20;

/// Breaks a volume beside an agent from the image.
const TRIAL: &str = include_str!("image/trial.sh");

fn containerfile() -> PathBuf {
    root().join("deploy/image/Containerfile")
}

/// The image, as a layout of the OCI.
fn layout(scene: &Scene) -> PathBuf {
    scene.folder.join("image/oci")
}

/// Where it is unpacked.
fn bundle(scene: &Scene) -> PathBuf {
    scene.folder.join("image/bundle")
}

fn lint(scene: &Scene) -> Result<String> {
    super::tools::silent(scene.tools.python("hadolint")?.arg("--no-color").arg(containerfile()))?;
    Ok("no complaint".to_owned())
}

fn build(scene: &Scene) -> Result<String> {
    ensure_installed(BUILDER)?;
    let place = scene.folder.join("image");
    empty(&place)?;
    let context = place.join("context");
    lay_out(scene, &context.join("root"))?;
    let tag = format!("mountie:{}", scene.version);
    let archive = scene.folder.join(format!("mountie-{}.oci.tar", scene.version));
    if archive.is_file() {
        fs::remove_file(&archive)?;
    }
    let revision = super::revision().unwrap_or_default();
    let time = super::time_of_commit();
    let mut bud = buildah(&place);
    bud.args(["bud", "--isolation=chroot", "--format=oci", "--layers=false", "--pull-never", "--timestamp"]);
    bud.arg(time.unwrap_or_else(|_| "0".to_owned()));
    bud.args(["--build-arg", &format!("VERSION={}", scene.version), "--build-arg"]);
    bud.arg(format!("REVISION={revision}"))
        .args(["--tag", &tag, "--file"])
        .arg(containerfile())
        .arg(&context);
    let result = quiet(&mut bud).and_then(|_| {
        quiet(buildah(&place).args([
            "push",
            &tag,
            &format!("oci:{}:{}", layout(scene).display(), scene.version),
        ]))?;
        quiet(buildah(&place).args(["push", &tag, &format!("oci-archive:{}:{tag}", archive.display())]))
    });
    // Also when it failed: what the store has mounted would stay.
    let _ = quiet(buildah(&place).args(["rmi", "--all", "--force"]));
    result?;
    let size = fs::metadata(&archive)?.len();
    ensure!(size <= SIZE_MAX, "{} has {size} bytes, at most {SIZE_MAX} are wanted", archive.display());
    let name = archive.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(format!("{name}, {:.1} MiB compressed", size as f64 / f64::from(1 << 20)))
}

/// `buildah` with a store of its own.
fn buildah(place: &Path) -> Command {
    let mut command = Command::new("buildah");
    let folder = |name: &str| place.join(name).into_os_string();
    command.arg("--root").arg(folder("store")).arg("--runroot").arg(folder("run"));
    command.args(["--storage-driver", "vfs"]);
    command
}

/// The root directory: nobody can write it, and nothing in it can be run but the program.
fn lay_out(scene: &Scene, to: &Path) -> Result<()> {
    let (program, documents) = (to.join(PROGRAM), to.join(DOCUMENTS));
    for folder in PLACES.map(|place| to.join(place)).iter().chain([&documents, &to.join("usr/bin")]) {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    fs::copy(binary::shipped(scene), &program)?;
    let texts = ["LICENSE", "LICENSE-MIT", "LICENSE-APACHE"].map(|name| root().join(name));
    for text in texts.iter().chain([&licences::path(scene)]) {
        fs::copy(text, documents.join(text.file_name().unwrap_or_default()))?;
    }
    each(to, &mut |path, kind| {
        let mode = if kind.is_dir() || path == program { 0o555 } else { 0o444 };
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .with_context(|| path.display().to_string())
    })
}

/// Everything below a folder, and the folder itself last.
fn each(folder: &Path, look: &mut impl FnMut(&Path, &fs::Metadata) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        let found = fs::symlink_metadata(&path)?;
        if found.is_dir() {
            each(&path, look)?;
        } else {
            look(&path, &found)?;
        }
    }
    look(folder, &fs::symlink_metadata(folder)?)
}

fn empty(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[derive(Deserialize)]
struct Inspected {
    config: ImageConfig,
}

#[derive(Deserialize)]
struct ImageConfig {
    #[serde(rename = "Entrypoint")]
    entrypoint: Vec<String>,
    #[serde(rename = "Cmd")]
    arguments: Vec<String>,
    #[serde(rename = "Labels")]
    labels: std::collections::BTreeMap<String, String>,
}

fn look_into(scene: &Scene) -> Result<String> {
    ensure_installed(READERS)?;
    let image = format!("{}:{}", layout(scene).display(), scene.version);
    let config = quiet(Command::new("skopeo").args(["inspect", "--config", &format!("oci:{image}")]))?;
    let Inspected { config } = serde_json::from_str(&config).context("skopeo inspect")?;
    ensure!(
        config.entrypoint == [format!("/{PROGRAM}")] && config.arguments == ["run"],
        "it starts something else"
    );
    for label in ["title", "description", "licenses", "version", "revision", "vendor"] {
        let name = format!("org.opencontainers.image.{label}");
        ensure!(
            config.labels.get(&name).is_some_and(|value| !value.is_empty()),
            "the label {name} is missing"
        );
    }
    empty(&bundle(scene))?;
    quiet(Command::new("umoci").args(["unpack", "--image", &image]).arg(bundle(scene)))?;
    let rootfs = bundle(scene).join("rootfs");
    let (mut files, mut bytes, mut wrong) = (0, 0, Vec::new());
    each(&rootfs, &mut |path, found| {
        let inside = path.strip_prefix(&rootfs).unwrap_or(path).to_string_lossy().into_owned();
        let may_run = found.is_dir() || inside == PROGRAM;
        // The root itself is made by whoever unpacks it.
        let allowed = if inside.is_empty() {
            0o755
        } else if may_run {
            0o555
        } else {
            0o444
        };
        if found.mode() & 0o7777 & !allowed != 0 || found.uid() != 0 || found.gid() != 0 {
            wrong.push(format!("{inside}: mode {:o}, owner {}", found.mode() & 0o7777, found.uid()));
        }
        if !found.is_dir() && inside != PROGRAM && !inside.starts_with(DOCUMENTS) {
            wrong.push(format!("{inside} does not belong there"));
        }
        files += usize::from(found.is_file());
        bytes += if found.is_file() { found.len() } else { 0 };
        Ok(())
    })?;
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    let program = fs::metadata(rootfs.join(PROGRAM))?.len();
    let mebi = f64::from(1 << 20);
    Ok(format!(
        "{files} files, {:.1} MiB, the program {:.1} of it; nothing else can be run, nothing written, no shell",
        bytes as f64 / mebi,
        program as f64 / mebi
    ))
}

/// In namespaces of its own, which stand for a node.
fn live(scene: &Scene) -> Result<String> {
    ensure_installed(RUNNER)?;
    let script = scene.folder.join("image/trial.sh");
    fs::write(&script, TRIAL)?;
    let mut node = Command::new("unshare");
    node.args(OWN_NAMESPACES);
    node.args(["timeout", "600", "bash"])
        .arg(&script)
        .arg(bundle(scene))
        .arg(scene.folder.join("image/node"));
    node.arg(root().join("deploy/helm/mountie/values.yaml"));
    let told = quiet(&mut node)?;
    told.lines().last().map(str::to_owned).context("the trial told nothing")
}
