//! The Debian package: built by cargo-deb, judged by lintian, and lived with in a small system of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::tools::cargo_deb;
use super::{Scene, Step, binary, licences};
use crate::command::{cargo, root};
use crate::quietly::quiet;
use crate::setup::{Package, ensure_installed};

mod life;

const KIND: &str = "deb";

pub(super) const STEPS: &[Step] = &[
    Step { kind: KIND, name: "cargo deb", run: build },
    Step { kind: KIND, name: "lintian", run: lintian },
    Step { kind: KIND, name: "install, break, upgrade, remove, purge", run: life::live },
];

const LINTIAN: &[Package] =
    &[Package { name: "lintian", program: "lintian" }, Package { name: "man-db", program: "man" }];

/// Who completes, and where its file is looked for.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/mountie"),
    ("zsh", "usr/share/zsh/vendor-completions/_mountie"),
    ("fish", "usr/share/fish/vendor_completions.d/mountie.fish"),
];

/// The package.
fn path(scene: &Scene) -> PathBuf {
    scene.folder.join(format!("mountie_{}-1_{}.deb", scene.version, architecture()))
}

/// What Debian calls this machine's architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn build(scene: &Scene) -> Result<String> {
    cargo_deb()?;
    held_to_the_workspace(&scene.version)?;
    let stage = scene.folder.join("deb");
    if stage.is_dir() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    let documents = stage.join("root/usr/share/doc/mountie");
    fs::create_dir_all(&documents)?;
    fs::copy(binary::shipped(scene), stage.join("mountie"))?;
    let texts = licences::path(scene).with_extension("gz");
    fs::copy(&texts, documents.join("third-party.gz")).with_context(|| format!("no {}", texts.display()))?;
    comments_are_right(&stage)?;
    let pages = pages(&stage.join("mountie"), &stage.join("root"))?;
    let mut deb = cargo();
    deb.args(["deb", "--quiet", "--no-build", "--no-strip", "--package", "agent"]);
    deb.args(["--target", &binary::target(), "--output"]).arg(path(scene));
    // The same package from the same state, whenever it is built.
    if let Ok(time) = super::time_of_commit() {
        deb.env("SOURCE_DATE_EPOCH", time);
    }
    quiet(&mut deb)?;
    let size = fs::metadata(path(scene))?.len() as f64 / f64::from(1 << 20);
    Ok(format!("{}, {size:.1} MiB, {pages}", path(scene).file_name().unwrap_or_default().to_string_lossy()))
}

/// The changelog begins with the version of the workspace, and the page of the installation names its files.
fn held_to_the_workspace(version: &str) -> Result<()> {
    let begins = format!("mountie ({version}-");
    let named = [
        format!("mountie_{version}-1_amd64.deb"),
        format!("mountie-{version}.tgz"),
        format!("mountie-{version}.oci.tar"),
        format!("mountie:{version}"),
    ];
    let changelog = fs::read_to_string(root().join("deploy/debian/changelog"))?;
    ensure!(changelog.starts_with(&begins), "deploy/debian/changelog does not begin with {begins}…)");
    let page = fs::read_to_string(root().join("docs/INSTALL.md"))?;
    for name in &named {
        ensure!(page.contains(name), "docs/INSTALL.md does not name {name}");
    }
    Ok(())
}

/// What the installed configuration shows in comments is a configuration too.
fn comments_are_right(stage: &Path) -> Result<()> {
    let text = fs::read_to_string(root().join("deploy/debian/config.toml"))?;
    let shown = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|first: char| first.is_ascii_lowercase() || first == '[') => {
            format!("{rest}\n")
        }
        _ => format!("{line}\n"),
    };
    let file = stage.join("shown.toml");
    fs::write(&file, text.lines().map(shown).collect::<String>())?;
    binary::check_config(&stage.join("mountie"), &file)
}

/// Where manual pages are.
fn manual(to: &Path) -> PathBuf {
    to.join("usr/share/man/man8")
}

/// Manual pages and completions, which the program makes itself.
fn pages(program: &Path, to: &Path) -> Result<String> {
    let manual = manual(to);
    fs::create_dir_all(&manual)?;
    quiet(Command::new(program).arg("man").arg("--dir").arg(&manual)).context("no manual pages")?;
    let count = fs::read_dir(&manual)?.count();
    ensure!(count > 0, "mountie man has written nothing");
    for (shell, place) in COMPLETIONS {
        let place = to.join(place);
        fs::create_dir_all(place.parent().context("a file at the root")?)?;
        fs::write(&place, quiet(Command::new(program).args(["completions", shell]))?)?;
    }
    Ok(format!("{count} manual pages, completions for {} shells", COMPLETIONS.len()))
}

/// Nothing is left that lintian would say, but what is overridden with a reason.
fn lintian(scene: &Scene) -> Result<String> {
    ensure_installed(LINTIAN)?;
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--display-info", "--show-overrides", "--fail-on", "none"]);
    let output = lintian.arg(path(scene)).output().context("failed to start lintian")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (overridden, hints): (Vec<&str>, Vec<&str>) =
        said.lines().filter(|line| !line.starts_with("N:")).partition(|line| line.starts_with("O:"));
    if !output.status.success() || !hints.is_empty() {
        bail!("lintian says:\n{}\n{}", hints.join("\n"), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(format!("clean; {} overridden, each with a reason", overridden.len()))
}
