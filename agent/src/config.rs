//! The configuration: file, environment and flags into one validated `Config`.
//!
//! Strength, weakest first: defaults, file, environment (`MOUNTIE_<SECTION>_<KEY>`), flags. Everything that is
//! wrong is reported at once, with its key path, what was found and what is accepted. A reload calls
//! [`Config::load`] again and keeps the old configuration when that fails.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use agent_core::path::{BytePath, is_deceptive};
use agent_core::policy::Policy;
use agent_core::volume::Sentinel;
use toml::Spanned;
use toml::de::DeTable;

use crate::sensor::ebpf;
pub use crate::sensor::ebpf::Family;
pub use crate::telemetry::LogFormat;

mod environment;
mod error;
mod file;
mod print;
mod raw;
mod reader;
mod scalar;
mod secret;
mod show;
mod suggest;
mod text;
mod unsupported;
mod validate;
mod volume;

#[cfg(test)]
mod tests;

pub use environment::Environment;
pub use error::{ConfigError, ConfigErrors, Place, Problem};

use environment::Overrides;
use file::Content;
use raw::{RawAgent, RawConfig};
use reader::{Document, Reader};
use text::{Content as SentinelContent, InnerPath};

/// Where the file is when nobody says otherwise. It need not exist.
pub const DEFAULT_FILE: &str = "/etc/mountie/config.toml";

/// Everything the operator decides, checked. No part of it is optional where a default exists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// The process itself.
    pub agent: AgentConfig,
    /// The kernel programs.
    pub kernel: KernelConfig,
    /// What the engine is told.
    pub policy: Policy,
}

/// The process itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentConfig {
    /// Where HTTP listens; `None`: nowhere on TCP.
    pub listen: Option<SocketAddr>,
    /// The unix socket for commands.
    pub socket: PathBuf,
    /// The unix socket on which Docker asks about volumes; `None`: nowhere.
    pub docker_plugin: Option<PathBuf>,
    /// Where state is kept.
    pub state_dir: PathBuf,
    /// Whose mounts are watched.
    pub mount_namespace: MountNamespace,
    /// How log lines look.
    pub log_format: LogFormat,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            listen: Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9747)),
            socket: PathBuf::from("/run/mountie/mountie.sock"),
            docker_plugin: None,
            state_dir: PathBuf::from("/var/lib/mountie"),
            mount_namespace: MountNamespace::default(),
            log_format: LogFormat::default(),
        }
    }
}

impl AgentConfig {
    /// The directory under which plans make new mounts, beside the socket.
    #[must_use]
    pub fn stage_root(&self) -> PathBuf {
        self.runtime_dir().join("stage")
    }

    /// The file that only one agent can hold, beside the socket.
    #[must_use]
    pub fn lock_file(&self) -> PathBuf {
        self.runtime_dir().join("lock")
    }

    /// The directory of the socket.
    #[must_use]
    pub fn runtime_dir(&self) -> &Path {
        self.socket.parent().unwrap_or(Path::new("/"))
    }
}

/// Whose mounts are watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MountNamespace {
    /// The agent's own (`"self"`).
    Own,
    /// The one behind this file.
    Path(PathBuf),
}

impl MountNamespace {
    /// As it is written: `self`, or the path.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        match self {
            Self::Own => Path::new("self"),
            Self::Path(path) => path,
        }
    }
}

impl Default for MountNamespace {
    fn default() -> Self {
        Self::Path(PathBuf::from("/proc/1/ns/mnt"))
    }
}

/// The kernel programs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelConfig {
    /// Which hooks count failing operations.
    pub family: Family,
    /// Where the kernel describes its structures (BTF).
    pub btf: PathBuf,
}

impl Default for KernelConfig {
    fn default() -> Self {
        Self { family: Family::default(), btf: ebpf::Settings::default().btf }
    }
}

/// Everything a configuration is made from. Kept, so that a reload reads the same places again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Sources {
    /// `--config`: must exist. `None`: [`DEFAULT_FILE`], if it exists.
    pub file: Option<PathBuf>,
    /// Variables.
    pub environment: Environment,
    /// Flags by name (`--listen`), as given.
    pub flags: BTreeMap<&'static str, String>,
}

impl Sources {
    /// The file that is read.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new(DEFAULT_FILE))
    }
}

impl Config {
    /// Reads and checks everything.
    ///
    /// # Errors
    /// Everything that is wrong, at once. Only a file that is no TOML ends at its first mistake.
    pub fn load(sources: &Sources) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let overrides = Overrides::new(&sources.environment, &sources.flags, &mut errors);
        let text = match file::read(sources.path(), &mut errors) {
            Content::Text(text) => text,
            Content::Unusable => String::new(),
            Content::Absent => {
                if sources.file.is_some() {
                    let place = Place::new(sources.path().display().to_string(), None);
                    let source = std::io::Error::from_raw_os_error(nix::libc::ENOENT);
                    errors.push(ConfigError { place, problem: Problem::Unreadable(source) });
                }
                String::new()
            }
        };
        parse(&text, sources.path(), overrides, errors)
    }

    /// From the text of a file alone.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_toml(text: &str) -> Result<Self, ConfigErrors> {
        Self::from_text(text, &Sources::default())
    }

    /// From the text of a file, with what the environment and the flags say.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_text(text: &str, sources: &Sources) -> Result<Self, ConfigErrors> {
        let mut errors = Vec::new();
        let overrides = Overrides::new(&sources.environment, &sources.flags, &mut errors);
        parse(text, sources.file.as_deref().unwrap_or(Path::new("config.toml")), overrides, errors)
    }

    /// The effective configuration: every key, in the form of the file.
    #[must_use]
    pub fn to_toml(&self) -> String {
        print::to_toml(self)
    }
}

/// A duration as the file has it, from a command line: `90s`, `30m`, `2h`.
///
/// # Errors
/// When it is none.
pub fn duration(text: &str) -> Result<std::time::Duration, String> {
    scalar::duration(text)
        .ok_or_else(|| "a whole number followed by s, m or h is accepted: 90s, 30m, 2h".to_owned())
}

/// Where a running agent's socket is, for commands that ask it. Never fails: a fault of the file is the
/// agent's to report, and a user who asks for the status may not even be allowed to read it.
#[must_use]
pub fn socket_path(sources: &Sources) -> PathBuf {
    let mut ignored = Vec::new();
    let overrides = Overrides::new(&sources.environment, &sources.flags, &mut ignored);
    let text = match file::read(sources.path(), &mut ignored) {
        Content::Text(text) => text,
        Content::Absent | Content::Unusable => String::new(),
    };
    let table = DeTable::parse(&text).ok();
    let document = Document::new(&text, overrides, ignored);
    let mut root = Reader::root(&document, table.as_ref().map(Spanned::get_ref));
    validate::agent(RawAgent::read(root.section("agent"))).socket
}

/// A sentinel's path, as the configuration takes it.
///
/// # Errors
/// Why it is none, for people.
pub fn inner_path(text: &str) -> Result<BytePath, String> {
    one::<InnerPath>("path", text).map(|path| path.0)
}

/// A sentinel's content, as the configuration takes it, and not empty.
///
/// # Errors
/// Why it is none, for people.
pub fn sentinel_content(text: &str) -> Result<Vec<u8>, String> {
    if text.trim_end_matches('\n').is_empty() {
        return Err("content: an empty sentinel proves nothing; write a text".to_owned());
    }
    one::<SentinelContent>("content", text).map(|content| content.0)
}

/// The line of a volume that names this sentinel.
#[must_use]
pub fn sentinel_line(sentinel: &Sentinel) -> String {
    print::sentinel_line(sentinel)
}

fn one<T: scalar::Scalar>(key: &str, text: &str) -> Result<T, String> {
    T::from_text(text).map_err(|rejected| {
        let why =
            if rejected.reason.is_empty() { String::new() } else { format!(", which {}", rejected.reason) };
        format!("{key}: found {}{why}; expected {}", show::text(text), T::expected())
    })
}

/// The flags that override the file.
#[cfg(test)]
pub(crate) fn flags() -> impl Iterator<Item = &'static str> {
    environment::SETTINGS.iter().filter_map(environment::Setting::flag)
}

fn parse(
    text: &str,
    path: &Path,
    overrides: Overrides,
    mut errors: Vec<ConfigError>,
) -> Result<Config, ConfigErrors> {
    let table = match DeTable::parse(text) {
        Ok(table) => Some(table),
        Err(error) => {
            let place = Place::new(path.display().to_string(), None);
            errors.push(ConfigError { place, problem: syntax(text, &error) });
            None
        }
    };
    let document = Document::new(text, overrides, errors);
    let raw = RawConfig::read(Reader::root(&document, table.as_ref().map(Spanned::get_ref)));
    let config = validate::config(raw, &document);
    let errors = document.into_errors();
    if errors.is_empty() { Ok(config) } else { Err(ConfigErrors::new(errors)) }
}

/// What the parser says, with the line it is about. Of a line that may hold a secret nothing is shown, not even
/// the parser's message, which may quote it.
fn syntax(text: &str, error: &toml::de::Error) -> Problem {
    let offset = error.span().map_or(0, |span| span.start.min(text.len()));
    let (line, column) = reader::position(text, offset).unwrap_or((1, 1));
    let found = text.split('\n').nth(line - 1).unwrap_or_default().trim_end();
    if secret::is_suspicious(found) {
        let message = "is not valid TOML".to_owned();
        return Problem::Syntax {
            line,
            column,
            message,
            text: "(not shown: it may hold a secret)".to_owned(),
        };
    }
    let text = found.chars().take(200).map(|c| if is_deceptive(c) { ' ' } else { c }).collect();
    Problem::Syntax { line, column, message: error.message().trim_end().replace('\n', ", "), text }
}
