//! The name of an event: which run of the agent, and its number there. Who has seen one can go on from it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The name of an event, as `19c3f2a-17`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct EventId {
    run: u64,
    number: u64,
}

/// Why a text is none.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
#[error("`{text}` is not the id of an event, such as 19c3f2a-17")]
pub struct NotAnEventId {
    text: String,
}

impl EventId {
    pub(crate) const fn new(run: u64, number: u64) -> Self {
        Self { run, number }
    }

    /// The run of the agent.
    pub(crate) const fn run(self) -> u64 {
        self.run
    }

    /// Its number in that run, from 1; 0 stands before the first.
    pub(crate) const fn number(self) -> u64 {
        self.number
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.run, self.number)
    }
}

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<Self, NotAnEventId> {
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let parts = text.split_once('-').filter(|(run, number)| plain(run) && plain(number));
        let id = parts.and_then(|(run, number)| {
            Some(Self { run: u64::from_str_radix(run, 16).ok()?, number: number.parse().ok()? })
        });
        id.ok_or_else(|| NotAnEventId { text: text.chars().take(60).collect() })
    }
}

impl Serialize for EventId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for EventId {
    fn schema_name() -> Cow<'static, str> {
        "EventId".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": "^[0-9a-f]+-[0-9]+$",
            "description": "The name of an event: a run of the agent, and the number of the event in it.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::EventId;

    #[test]
    fn an_id_reads_back_as_printed_and_nothing_else_is_one() {
        for id in [EventId::new(0, 0), EventId::new(0x19c3_f2a7, 17), EventId::new(u64::MAX, u64::MAX)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "-", "1", "1-", "-1", "g-1", "1-a", "1-+1", "+1-1", "1-1-1", "1-1\n", "1 -1"] {
            assert!(text.parse::<EventId>().is_err(), "{text:?}");
        }
    }
}
