//! `prometheus-node-exporter` for the measurement of a node of many mounts: unpacked beside the build, not installed.

use anyhow::Result;

use crate::command::{need_root, root};
use crate::{shows, unpacked};

const PACKAGE: &str = "prometheus-node-exporter";
const PROGRAM: &str = "usr/bin/prometheus-node-exporter";
const TABLE: &str = "tests/SCALE.md";

/// Measures, and writes the table.
pub(crate) fn run() -> Result<()> {
    need_root("bench scale")?;
    let folder = root().join("target/scale");
    let program = match unpacked::package(PACKAGE, PROGRAM, &folder) {
        Ok(package) => Some(package.join(PROGRAM)),
        Err(error) => {
            eprintln!("without {PACKAGE}: {error:#}");
            None
        }
    };
    let table = root().join(TABLE);
    let mut settings = vec![("SHOW_OUTPUT", table.as_path())];
    settings.extend(program.as_deref().map(|program| ("NODE_EXPORTER", program)));
    shows::run_with("scale", 1, &settings)
}
