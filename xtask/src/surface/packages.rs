//! What is shipped, as far as it needs no program: the unit and the chart. `cargo xtask package` does it all.

use anyhow::Result;

use super::{Check, Need, Scene};
use crate::package;

pub(super) const LINTED: Check =
    Check { name: "packages: unit and chart pass their linters", needs: &[Need::PackageTools], run: linted };

const KINDS: [&str; 2] = ["unit", "chart"];

fn linted(_: &Scene) -> Result<String> {
    let steps = package::check(&KINDS.map(str::to_owned))?;
    Ok(format!("{steps} steps; the Debian package and the image: cargo xtask package"))
}
