//! The systemd unit: it is well formed, and as narrow as it can be.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{Scene, Step};
use crate::command::root;
use crate::quietly::quiet;

const KIND: &str = "unit";

pub(super) const STEPS: &[Step] = &[
    Step { kind: KIND, name: "systemd-analyze verify", run: verify },
    Step { kind: KIND, name: "systemd-analyze security", run: security },
];

/// The most exposure that the unit may have. What stands between it and nothing is what an agent without a mount
/// namespace of its own cannot do without; docs/SECURITY.md has it in words.
const EXPOSURE_MAX: f64 = 5.5;

/// What is verified has its program: any file that can be run stands for the agent.
fn verify(scene: &Scene) -> Result<String> {
    let text = read()?;
    let program = "/usr/bin/mountie";
    if !text.contains(&format!("ExecStart={program} run\n")) {
        bail!("the unit does not start {program}");
    }
    let place = scene.folder.join("unit");
    std::fs::create_dir_all(&place)?;
    let unit = place.join("mountie.service");
    std::fs::write(&unit, text.replace(program, "/bin/true"))?;
    let output = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&unit)
        .output()
        .context("failed to start systemd-analyze")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).trim().to_owned();
    if !output.status.success() || !said.is_empty() {
        bail!("systemd-analyze says:\n{said}");
    }
    Ok("no complaint".to_owned())
}

fn security(scene: &Scene) -> Result<String> {
    let place = scene.folder.join("unit/security");
    std::fs::create_dir_all(&place)?;
    let unit = place.join("mountie.service");
    std::fs::write(&unit, read()?)?;
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["security", "--offline=true", "--no-pager"]).arg(&unit);
    let said = quiet(&mut analyze)?;
    let exposure = exposure(&said).context("systemd-analyze told no exposure level")?;
    if exposure > EXPOSURE_MAX {
        bail!("the exposure level is {exposure}, and may be {EXPOSURE_MAX}");
    }
    Ok(format!("exposure level {exposure}, at most {EXPOSURE_MAX}"))
}

fn read() -> Result<String> {
    let path: &Path = &root().join("deploy/mountie.service");
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// From the closing line: `→ Overall exposure level for mountie.service: 5.5 MEDIUM`.
fn exposure(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains("exposure level"))?;
    line.rsplit(": ").next()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_stands_in_the_closing_line() {
        let said = "✗ User=/DynamicUser=  Service runs as root user\n\n→ Overall exposure level for x.service: 5.5 MEDIUM 😐\n";
        assert_eq!(exposure(said), Some(5.5));
        assert_eq!(exposure("nothing"), None);
    }
}
