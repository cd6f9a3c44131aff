//! The volume plugin, asked by a real daemon of Docker.

use std::process::Command;

use anyhow::{Context, Result};

use super::{Check, Need, Scene};
use crate::quietly::quiet;
use crate::unpacked;

pub(super) const PLUGIN: Check = Check {
    name: "docker: its daemon shows how volumes are",
    needs: &[Need::Agent, Need::Bench, Need::Docker],
    run: plugin,
};

/// The packages that a daemon is made of, each with a program and the folder that it is in.
const PACKAGES: [(&str, &str, &str); 4] = [
    ("docker.io", "dockerd", "usr/sbin"),
    ("docker.io", "docker", "usr/bin"),
    ("containerd", "containerd", "usr/bin"),
    ("runc", "runc", "usr/sbin"),
];

fn plugin(scene: &Scene) -> Result<String> {
    let folders = PACKAGES.iter().map(|(package, program, folder)| {
        let unpacked = unpacked::package(package, &format!("{folder}/{program}"), &scene.tools.folder)?;
        Ok(unpacked.join(folder).display().to_string())
    });
    let folders = folders.collect::<Result<Vec<_>>>()?.join(":");
    let mut show = Command::new(scene.bench()?);
    show.args(["--show", "docker"]).env("MOUNTIE_BIN", scene.binary()?).env("SHOW_DOCKER", folders);
    let said = quiet(&mut show)?;
    let last = said.lines().find_map(|line| line.strip_prefix("docker: "));
    Ok(last.context("the show says nothing")?.to_owned())
}
