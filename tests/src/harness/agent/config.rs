//! The agent's configuration file for a case: where it listens and keeps things, and what the case wrote.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::harness::bench::Bench;

/// The settings of one agent.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Names the configuration file and the log.
    pub name: String,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Its socket. The stage is beside it.
    pub socket: PathBuf,
    /// Its state directory.
    pub state_dir: PathBuf,
    /// A program that starts it, with arguments; empty: it is started directly.
    pub wrapper: Vec<String>,
    /// More lines of `[agent]`.
    pub agent_lines: String,
    /// Everything but `[agent]`.
    pub body: String,
}

impl Setup {
    /// The settings of most cases: a free port, the standard socket, no discovery unless the body says so.
    ///
    /// # Errors
    /// When no port is free.
    pub fn new(bench: &Bench, body: &str) -> Result<Self> {
        let discovery = if body.contains("[discovery]") { "" } else { "[discovery]\nenabled = false\n" };
        Ok(Self {
            name: "agent".to_owned(),
            listen: free_address()?,
            socket: PathBuf::from("/run/mountie/mountie.sock"),
            state_dir: bench.path("state"),
            wrapper: Vec::new(),
            agent_lines: String::new(),
            body: format!("{discovery}{body}"),
        })
    }

    /// The same for an agent in a process group of its own: the case's own group passes an autofs trap freely.
    ///
    /// # Errors
    /// When no port is free.
    pub fn in_own_group(bench: &Bench, body: &str) -> Result<Self> {
        let wrapper = ["setsid", "--wait"].map(str::to_owned).to_vec();
        Ok(Self { wrapper, ..Self::new(bench, body)? })
    }

    /// The whole file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[agent]\nmount_namespace = \"self\"\n");
        for (key, value) in [
            ("listen", self.listen.to_string()),
            ("socket", self.socket.display().to_string()),
            ("state_dir", self.state_dir.display().to_string()),
        ] {
            let _ = writeln!(text, "{key} = {}", toml_string(&value));
        }
        text + &self.agent_lines + &self.body
    }
}

/// A text as TOML writes it.
#[must_use]
pub fn toml_string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// An address that was free a moment ago. Cases run at once, and the kernel hands ports out in turn, so that
/// two cases do not get the same one.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    listener.local_addr().context("the listener has no address")
}

/// One `[[volume]]` table.
#[derive(Clone, Debug)]
pub struct Volume {
    lines: String,
    repair: String,
}

impl Volume {
    /// A volume that is expected at a mount point.
    #[must_use]
    pub fn at(name: &str, mountpoint: &Path) -> Self {
        let lines = format!("[[volume]]\nname = {}\n", toml_string(name));
        Self { lines, repair: String::new() }.set("mountpoint", &mountpoint.display().to_string())
    }

    /// A key with a text.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        let _ = writeln!(self.lines, "{key} = {}", toml_string(value));
        self
    }

    /// A sentinel with known content.
    #[must_use]
    pub fn sentinel(mut self, content: &str) -> Self {
        let content = toml_string(content);
        let _ = writeln!(self.lines, "sentinel = {{ path = \".mountie\", content = {content} }}");
        self
    }

    /// A line as it stands.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        let _ = writeln!(self.lines, "{line}");
        self
    }

    /// Repaired by mount(8).
    #[must_use]
    pub fn repaired_by_mount(self) -> Self {
        self.repaired(&[("method", "mount")])
    }

    /// Repaired in the way that these keys of `[volume.repair]` say, each with a text.
    #[must_use]
    pub fn repaired(mut self, keys: &[(&str, &str)]) -> Self {
        let lines: String =
            keys.iter().map(|(key, value)| format!("{key} = {}\n", toml_string(value))).collect();
        self.repair = format!("[volume.repair]\n{lines}");
        self.set("mode", "act")
    }

    /// Repaired by a command.
    #[must_use]
    pub fn repaired_by(mut self, command: &[String]) -> Self {
        let words: Vec<String> = command.iter().map(|word| toml_string(word)).collect();
        self.repair = format!("[volume.repair]\nmethod = \"command\"\ncommand = [{}]\n", words.join(", "));
        self.set("mode", "act")
    }

    /// The table.
    #[must_use]
    pub fn to_toml(&self) -> String {
        format!("{}{}", self.lines, self.repair)
    }
}
