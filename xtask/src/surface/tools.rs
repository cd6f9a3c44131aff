//! The programs that checks are made with: Debian's, unpacked beside the build.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::unpacked;

/// Where they are.
#[derive(Debug)]
pub(super) struct Tools {
    /// For what the checks write.
    pub(super) folder: PathBuf,
    pub(super) prometheus: PathBuf,
    pub(super) promtool: PathBuf,
    /// Modules of Python.
    python: PathBuf,
}

impl Tools {
    /// Downloads what is missing.
    pub(super) fn find(folder: &Path) -> Result<Self> {
        let prometheus = unpacked::package("prometheus", "usr/bin/promtool", folder)?;
        let modules = "usr/lib/python3/dist-packages";
        let reader = format!("{modules}/prometheus_client/openmetrics/parser.py");
        let python = unpacked::package("python3-prometheus-client", &reader, folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            prometheus: prometheus.join("usr/bin/prometheus"),
            promtool: prometheus.join("usr/bin/promtool"),
            python: python.join(modules),
        })
    }

    /// `promtool` with arguments.
    pub(super) fn promtool(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.promtool);
        command.args(arguments);
        command
    }

    /// Python with a program that reads its input.
    pub(super) fn python(&self, program: &str) -> Command {
        let mut command = Command::new("python3");
        command.args(["-c", program]).env("PYTHONPATH", &self.python);
        command
    }
}
