//! What people see, by Chromium and by Grafana's published types: programs of Node.js, in the folder `browser` of the
//! workspace, with what they need installed beside the build.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::{Check, Need, Scene};
use crate::command::{must, root, step};
use crate::operator;
use crate::quietly::quiet;
use crate::setup::{Package, ensure_installed};

pub(super) const TYPES: Check =
    Check { name: "dashboards: Grafana's types take them", needs: &[Need::Node], run: types };

pub(super) const OPENAPI: Check =
    Check { name: "api: a validator takes its description", needs: &[Need::Node, Need::World], run: openapi };

/// The looks at the status page, the last of which breaks one more volume.
pub(super) const PAGE: [Check; 5] = [
    look("page: every volume, wide and dark", |scene| look_at(scene, "wide")),
    look("page: on a phone", |scene| look_at(scene, "phone")),
    look("page: without scripts", |scene| look_at(scene, "scriptless")),
    look("page: one volume has an address", |scene| look_at(scene, "permalink")),
    look("page: shows what happens", |scene| look_at(scene, "live")),
];

const fn look(name: &'static str, run: fn(&Scene) -> Result<String>) -> Check {
    Check { name, needs: &[Need::Node, Need::Chromium, Need::World], run }
}

/// What runs the programs.
pub(super) const NODE: &[Package] =
    &[Package { name: "nodejs", program: "node" }, Package { name: "npm", program: "npm" }];
/// The browser, with letters to write with.
pub(super) const CHROMIUM: &[Package] = &[
    Package { name: "chromium", program: "chromium" },
    Package { name: "fonts-dejavu-core", program: "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf" },
];
/// Where the programs are, and what they need to be installed.
const SOURCE: &str = "browser";
const MANIFESTS: [&str; 2] = ["package.json", "package-lock.json"];
const PROGRAMS: [&str; 3] = ["grafana.mjs", "openapi.mjs", "page.mjs"];
/// What a program says when something may change.
const NOW: &str = "now";

/// The programs' folder beside the build, with what they need; installed anew when that has changed.
pub(super) fn prepare(folder: &Path) -> Result<PathBuf> {
    let (source, place) = (root().join(SOURCE), folder.join(SOURCE));
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let text = |folder: &Path, name: &str| fs::read(folder.join(name)).ok();
    let is_new = MANIFESTS.iter().any(|name| text(&source, name) != text(&place, name));
    for name in MANIFESTS.iter().chain(&PROGRAMS) {
        fs::copy(source.join(name), place.join(name)).with_context(|| format!("cannot copy {name}"))?;
    }
    if is_new || !place.join("node_modules").is_dir() {
        step("installing what looks at pages");
        let install = must(
            Command::new("npm")
                .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
                .current_dir(&place),
        );
        if install.is_err() {
            // Next time is no time to believe that it is there.
            let _ = fs::remove_file(place.join("package-lock.json"));
        }
        install?;
    }
    Ok(place)
}

/// Installs packages, if their programs are missing.
pub(super) fn install(packages: &[Package]) -> Result<()> {
    ensure_installed(packages)
}

fn types(scene: &Scene) -> Result<String> {
    let dashboards = operator::files(&root().join("dashboards"), "json")?;
    let said =
        quiet(Command::new("node").arg("grafana.mjs").args(&dashboards).current_dir(scene.programs()?))?;
    Ok(said.lines().collect::<Vec<_>>().join("; "))
}

fn openapi(scene: &Scene) -> Result<String> {
    let document = format!("http://{}/api/v1/openapi.json", scene.world()?.agent);
    let said = quiet(Command::new("node").args(["openapi.mjs", &document]).current_dir(scene.programs()?))?;
    Ok(said.trim().to_owned())
}

/// Runs one look, and breaks one more volume when it says so.
fn look_at(scene: &Scene, name: &str) -> Result<String> {
    let world = scene.world()?;
    let mut process = Command::new("node")
        .args(["page.mjs", name, &format!("http://{}", world.agent)])
        .arg(&scene.tools.folder)
        .current_dir(scene.programs()?)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start node")?;
    let output = process.stdout.take().context("the look has no output")?;
    let mut last = String::new();
    for line in BufReader::new(output).lines() {
        last = line.context("the look's output cannot be read")?;
        if last == NOW {
            world.break_more()?;
        }
    }
    let mut fault = String::new();
    process.stderr.take().context("the look has no errors")?.read_to_string(&mut fault)?;
    if !process.wait().context("the look does not end")?.success() {
        bail!("{}", fault.trim());
    }
    ensure!(!last.is_empty() && last != NOW, "the look says nothing");
    Ok(last)
}
