//! The commands that runbooks tell people to type: the agent must know them.

use anyhow::{Result, ensure};

use super::{Check, Need, Scene};
use crate::command::root;
use crate::operator::runbooks::commands;
use crate::operator::{RUNBOOKS, files, text};
use crate::quietly::quiet;

pub(super) const COMMANDS: Check =
    Check { name: "runbooks: their commands are those of the agent", needs: &[Need::Agent], run: known };

fn known(scene: &Scene) -> Result<String> {
    let mut all = std::collections::BTreeSet::new();
    for path in files(&root().join(RUNBOOKS), "md")? {
        all.extend(commands(&text(&path)?).map(str::to_owned));
    }
    ensure!(!all.is_empty(), "no runbook names a command");
    for command in &all {
        // Flags and their values are read before the help is shown; nothing is carried out.
        quiet(std::process::Command::new(scene.binary()?).args(command.split_whitespace()).arg("--help"))?;
    }
    Ok(format!("{} commands", all.len()))
}
