//! What the environment and the flags say. Both override the file, for the keys in one table.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use super::error::{ConfigError, Place, Problem};
use super::suggest::closest;

/// A key that may also come from a variable, and perhaps from a flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    section: &'static str,
    key: &'static str,
    flag: Option<&'static str>,
}

const fn setting(section: &'static str, key: &'static str, flag: Option<&'static str>) -> Setting {
    Setting { section, key, flag }
}

/// Every such key. Named volumes are left out on purpose: what is mounted where belongs in one place.
pub(super) const SETTINGS: [Setting; 13] = [
    setting("agent", "listen", Some("--listen")),
    setting("agent", "socket", Some("--socket")),
    setting("agent", "docker_plugin", None),
    setting("agent", "state_dir", Some("--state-dir")),
    setting("agent", "mount_namespace", Some("--mount-namespace")),
    setting("agent", "log_format", Some("--log-format")),
    setting("kernel", "family", Some("--kernel-family")),
    setting("kernel", "btf", None),
    setting("defaults", "mode", Some("--mode")),
    setting("defaults", "interval", None),
    setting("defaults", "deadline", None),
    setting("defaults", "failures", None),
    setting("discovery", "enabled", None),
];

impl Setting {
    /// Whether it is about this key of this section.
    #[cfg(test)]
    pub(super) fn is(&self, section: &str, key: &str) -> bool {
        (self.section, self.key) == (section, key)
    }

    /// The variable's name.
    pub(super) fn variable(&self) -> String {
        format!("{PREFIX}{}_{}", self.section, self.key).to_ascii_uppercase()
    }

    /// The flag's name.
    #[cfg(test)]
    pub(super) const fn flag(&self) -> Option<&'static str> {
        self.flag
    }
}

const PREFIX: &str = "MOUNTIE_";

/// Variables of the same prefix that are read elsewhere: the log level, and what tests and builds use.
const OTHERS: [&str; 6] = [
    "MOUNTIE_LOG",
    "MOUNTIE_BIN",
    "MOUNTIE_KEEP_WRECK",
    "MOUNTIE_ALLOWED_SKIPS",
    "MOUNTIE_TEST_*",
    "MOUNTIE_DEV_*",
];

/// The variables that start with `MOUNTIE_`, as plain data, so that tests never touch those of the process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Environment(BTreeMap<String, OsString>);

impl Environment {
    /// What the process was started with.
    #[must_use]
    pub fn of_process() -> Self {
        Self::from_pairs(std::env::vars_os())
    }

    /// Keeps those of our prefix.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (impl AsRef<OsStr>, impl Into<OsString>)>) -> Self {
        let ours = pairs.into_iter().filter_map(|(name, value)| {
            let name = name.as_ref().to_string_lossy().into_owned();
            name.starts_with(PREFIX).then(|| (name, value.into()))
        });
        Self(ours.collect())
    }

    /// One variable, when it is text.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(|value| value.to_str())
    }
}

/// Values from outside the file, weakest first.
pub(super) struct Overrides(Vec<Override>);

struct Override {
    section: &'static str,
    key: &'static str,
    text: String,
    place: Place,
}

impl Overrides {
    /// Variables first, then flags, which win. Reports variables that nobody reads.
    pub(super) fn new(
        environment: &Environment,
        flags: &BTreeMap<&'static str, String>,
        errors: &mut Vec<ConfigError>,
    ) -> Self {
        report_unknown(environment, errors);
        let mut overrides = Vec::new();
        for setting in SETTINGS {
            let variable = setting.variable();
            if let Some(value) = environment.0.get(&variable) {
                let place = Place::new(variable, None);
                match value.to_str() {
                    Some(text) => overrides.push(setting.given(text, place)),
                    None => errors.push(ConfigError { place, problem: Problem::NotUtf8 }),
                }
            }
            if let Some((flag, text)) = setting.flag.and_then(|flag| flags.get_key_value(flag)) {
                overrides.push(setting.given(text, Place::new(*flag, None)));
            }
        }
        Self(overrides)
    }

    /// What was given for this key, weakest first.
    pub(super) fn of<'s>(&'s self, section: &str, key: &str) -> impl Iterator<Item = (&'s str, &'s Place)> {
        self.0
            .iter()
            .filter(move |given| given.section == section && given.key == key)
            .map(|given| (given.text.as_str(), &given.place))
    }
}

impl Setting {
    fn given(&self, text: &str, place: Place) -> Override {
        Override { section: self.section, key: self.key, text: text.to_owned(), place }
    }
}

fn report_unknown(environment: &Environment, errors: &mut Vec<ConfigError>) {
    let known: Vec<String> = SETTINGS.iter().map(Setting::variable).collect();
    for name in environment.0.keys() {
        if known.contains(name) || is_read_elsewhere(name) || is_service_link(name) {
            continue;
        }
        let problem = Problem::UnknownVariable {
            suggestion: closest(name, known.iter().map(String::as_str)).map(str::to_owned),
            accepted: format!("{}, MOUNTIE_LOG", known.join(", ")),
        };
        errors.push(ConfigError { place: Place::new(name.escape_debug().to_string(), None), problem });
    }
}

fn is_read_elsewhere(name: &str) -> bool {
    OTHERS.iter().any(|other| match other.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *other,
    })
}

/// Kubernetes puts `<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT`, `<SERVICE>_PORT_<N>_TCP…` into every container
/// for every service of the namespace; a service called `mountie` must not keep the agent from starting.
fn is_service_link(name: &str) -> bool {
    let is_port = |rest: &str| {
        let mut parts = rest.split('_');
        parts.next().is_some_and(|number| number.parse::<u16>().is_ok())
            && parts.next().is_some_and(|protocol| matches!(protocol, "TCP" | "UDP" | "SCTP"))
    };
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_SERVICE_PORT")
        || name.contains("_SERVICE_PORT_")
        || name.ends_with("_PORT")
        || name.match_indices("_PORT_").any(|(at, found)| name.get(at + found.len()..).is_some_and(is_port))
}
