//! One value: what is accepted, and how it is read from the file (typed) or from a variable or flag (text).
//! Ranges are types of their own, so that a value that exists has been checked.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use agent_core::volume::Mode;
use toml::de::DeValue;

use super::suggest::closest;
use super::{Family, LogFormat};

/// Why a value was refused. Both parts may be empty: then `expected` says all there is to say.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Rejected {
    /// Continues "found X, which …".
    pub(super) reason: &'static str,
    /// What to write instead.
    pub(super) advice: Option<String>,
}

impl Rejected {
    pub(super) fn because(reason: &'static str) -> Self {
        Self { reason, advice: None }
    }

    pub(super) fn write(advice: impl AsRef<str>) -> Self {
        Self { reason: "", advice: Some(format!("write {}", advice.as_ref())) }
    }
}

/// A value that is one token.
pub(super) trait Scalar: Sized {
    /// Completes "expected …".
    fn expected() -> Cow<'static, str>;

    /// From a variable, a flag, or a string of the file.
    fn from_text(text: &str) -> Result<Self, Rejected>;

    /// From the file. Most values are strings there.
    fn from_value(value: &DeValue<'_>) -> Result<Self, Rejected> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            _ => Err(Rejected::default()),
        }
    }
}

/// A value out of a short list of words.
pub(super) trait Choice: Copy + 'static {
    /// Every word, as documented.
    const WORDS: &'static [(&'static str, Self)];
}

/// The word for a choice.
pub(super) fn word<T: Choice + PartialEq>(choice: T) -> &'static str {
    T::WORDS.iter().find(|(_, value)| *value == choice).map_or("", |(word, _)| word)
}

impl<T: Choice> Scalar for T {
    fn expected() -> Cow<'static, str> {
        let words: Vec<String> = T::WORDS.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        format!("one of {}", words.join(", ")).into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        let exact = T::WORDS.iter().find(|(word, _)| *word == text);
        exact.map(|(_, choice)| *choice).ok_or_else(|| {
            closest(text, T::WORDS.iter().map(|(word, _)| *word))
                .map_or_else(Rejected::default, |word| Rejected::write(format!("\"{word}\"")))
        })
    }
}

impl Choice for Mode {
    const WORDS: &'static [(&'static str, Self)] =
        &[("off", Self::Off), ("observe", Self::Observe), ("dry-run", Self::DryRun), ("act", Self::Act)];
}

impl Choice for Family {
    const WORDS: &'static [(&'static str, Self)] =
        &[("auto", Self::Auto), ("fexit", Self::Fexit), ("sys_exit", Self::SysExit), ("off", Self::Off)];
}

impl Choice for LogFormat {
    const WORDS: &'static [(&'static str, Self)] = &[("text", Self::Text), ("json", Self::Json)];
}

/// The methods of repair that this version has; the others are in the table of what is not supported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MethodName {
    Mount,
    Fstab,
    Systemd,
    Command,
}

impl Choice for MethodName {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("mount", Self::Mount),
        ("fstab", Self::Fstab),
        ("systemd", Self::Systemd),
        ("command", Self::Command),
    ];
}

impl Scalar for bool {
    fn expected() -> Cow<'static, str> {
        "true or false".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        text.parse().map_err(|_| Rejected::default())
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Rejected> {
        value.as_bool().ok_or_else(|| match value.as_str() {
            Some(word @ ("true" | "false")) => Rejected::write(format!("{word} without quotes")),
            _ => Rejected::default(),
        })
    }
}

/// Where HTTP listens; `None` turns TCP off.
pub(super) struct Listen(pub(super) Option<SocketAddr>);

impl Scalar for Listen {
    fn expected() -> Cow<'static, str> {
        "an IP address and a port such as \"127.0.0.1:9747\" or \"[::1]:9747\", or \"\" to turn TCP off"
            .into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        text.parse().map(|address| Self(Some(address))).map_err(|_| {
            match text.strip_prefix(':').or_else(|| text.strip_prefix("*:")) {
                Some(port) if port.parse::<u16>().is_ok() => Rejected::write(format!(
                    "\"0.0.0.0:{port}\" for every IPv4 address, \"[::]:{port}\" for IPv6 as well"
                )),
                _ => match text.strip_prefix("localhost:") {
                    Some(port) if port.parse::<u16>().is_ok() => {
                        Rejected::write(format!("\"127.0.0.1:{port}\""))
                    }
                    _ => Rejected::default(),
                },
            }
        })
    }
}

/// A duration within limits in milliseconds.
pub(super) struct Within<const LEAST: u64, const MOST: u64>(pub(super) Duration);

/// Time between probes. A day is more than anybody wants, and keeps sums of times far from overflow.
pub(super) type Interval = Within<100, 86_400_000>;
/// Time for one probe. A worker is held for that long, so there is a limit.
pub(super) type Deadline = Within<1, 60_000>;
/// Time for a helper of a repair.
pub(super) type HelperTimeout = Within<100, 3_600_000>;

impl<const LEAST: u64, const MOST: u64> Scalar for Within<LEAST, MOST> {
    fn expected() -> Cow<'static, str> {
        let (least, most) = (Duration::from_millis(LEAST), Duration::from_millis(MOST));
        format!(
            "a duration such as \"500ms\", \"10s\" or \"2m\", from \"{}\" to \"{}\"",
            written(least),
            written(most)
        )
        .into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        let duration = parse_duration(text)?;
        let millis = duration.as_millis();
        if millis < u128::from(LEAST) {
            return Err(Rejected::because("is too short"));
        }
        if millis > u128::from(MOST) {
            return Err(Rejected::because("is too long"));
        }
        Ok(Self(duration))
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Rejected> {
        match value {
            DeValue::String(text) => Self::from_text(text),
            DeValue::Integer(number) => Err(missing_unit(&number.to_string())),
            _ => Err(Rejected::default()),
        }
    }
}

fn missing_unit(number: &str) -> Rejected {
    Rejected {
        reason: "has no unit",
        advice: Some(format!("write \"{number}s\" for seconds, \"{number}ms\" for milliseconds")),
    }
}

const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// A duration, if it is one that does not end at once.
pub(super) fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().filter(|duration| duration.as_secs() > 0)
}

fn parse_duration(text: &str) -> Result<Duration, Rejected> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or((text, ""));
    if number.is_empty() {
        return Err(Rejected::default());
    }
    if unit.is_empty() {
        return Err(missing_unit(number));
    }
    let Some((_, millis)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        return Err(Rejected::because("is not a whole number followed by ms, s, m or h"));
    };
    let number = number.parse::<u64>().ok();
    let total = number.and_then(|number| number.checked_mul(*millis));
    total.map(Duration::from_millis).ok_or(Rejected::because("is too long"))
}

/// A duration as the file has it: the largest unit that divides it.
pub(super) fn written(duration: Duration) -> String {
    let millis = duration.as_millis();
    let unit = UNITS.iter().rev().find(|(_, size)| millis > 0 && millis.is_multiple_of(u128::from(*size)));
    let (name, size) = unit.unwrap_or(&("ms", 1));
    format!("{}{name}", millis / u128::from(*size))
}

/// A whole number within limits.
pub(super) struct Count<const LEAST: u32, const MOST: u32>(pub(super) u32);

/// Failed probes in a row.
pub(super) type Failures = Count<1, 100>;
/// A user or a group. The last number stands for none.
pub(super) type AccountId = Count<0, 4_294_967_294>;
/// Attempts per hour.
pub(super) type MaxAttempts = Count<1, 1000>;

impl<const LEAST: u32, const MOST: u32> Scalar for Count<LEAST, MOST> {
    fn expected() -> Cow<'static, str> {
        format!("a whole number from {LEAST} to {MOST}").into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        let number = text.parse().ok().filter(|number| (LEAST..=MOST).contains(number));
        number.map(Self).ok_or_else(Rejected::default)
    }

    fn from_value(value: &DeValue<'_>) -> Result<Self, Rejected> {
        match value {
            DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix())
                .ok()
                .filter(|number| (LEAST..=MOST).contains(number))
                .map(Self)
                .ok_or_else(Rejected::default),
            DeValue::String(text) if Self::from_text(text).is_ok() => {
                Err(Rejected::write(format!("{text} without quotes")))
            }
            _ => Err(Rejected::default()),
        }
    }
}
