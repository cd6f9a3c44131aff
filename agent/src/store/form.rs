//! The envelope of a file: its kind and its version. One of an older version is brought to the newest, one of a newer
//! agent is told apart from one that says nothing.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A kind of file.
pub(super) struct Form {
    /// Of this agent.
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    /// Versions that are still read, oldest first.
    pub(super) old: &'static [Old],
}

/// A version that is not written any more.
pub(super) struct Old {
    pub(super) version: &'static str,
    pub(super) kind: &'static str,
    /// Makes a file of the next version of it.
    pub(super) step: fn(&mut Map<String, Value>),
}

impl Form {
    /// A file, or the version of a newer agent, or nothing that can be understood. Version and kind are looked at first:
    /// the shape of a newer one is not ours to judge.
    pub(super) fn parse<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, Option<String>> {
        let mut value: Value = serde_json::from_slice(bytes).map_err(|_| None)?;
        let word = |key| value.get(key).and_then(Value::as_str);
        let (Some(version), Some(kind)) = (word("apiVersion"), word("kind")) else { return Err(None) };
        if version == self.version {
            return if kind == self.kind {
                serde_json::from_value(value).map_err(|_| None)
            } else {
                Err(None)
            };
        }
        match self.old.iter().position(|old| old.version == version) {
            Some(at) if self.old.get(at).is_some_and(|old| old.kind == kind) => {
                let Value::Object(file) = &mut value else { return Err(None) };
                self.old.iter().skip(at).for_each(|old| (old.step)(file));
                serde_json::from_value(value).map_err(|_| None)
            }
            None if version.starts_with("mountie/") => Err(Some(version.to_owned())),
            Some(_) | None => Err(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: Form = Form {
        version: "mountie/v3",
        kind: "Thing",
        old: &[
            Old {
                version: "mountie/v1",
                kind: "Entry",
                step: |file| drop(file.insert("one".into(), 1.into())),
            },
            Old {
                version: "mountie/v2",
                kind: "Thing",
                step: |file| drop(file.insert("two".into(), 2.into())),
            },
        ],
    };

    fn parse(version: &str, kind: &str) -> Result<Value, Option<String>> {
        let text = format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\"}}");
        FORM.parse(text.as_bytes())
    }

    #[test]
    fn an_old_file_takes_every_step_that_came_after_it_and_no_other() {
        let steps = |file: &Value| (file.get("one").is_some(), file.get("two").is_some());
        let found = [("mountie/v1", "Entry"), ("mountie/v2", "Thing"), ("mountie/v3", "Thing")]
            .map(|(version, kind)| steps(&parse(version, kind).unwrap()));
        assert_eq!(found, [(true, true), (false, true), (false, false)]);
    }

    #[test]
    fn a_newer_version_is_named_and_what_is_of_another_kind_says_nothing() {
        assert_eq!(parse("mountie/v4", "Whatever"), Err(Some("mountie/v4".to_owned())));
        for (version, kind) in [("mountie/v3", "Entry"), ("mountie/v1", "Thing"), ("other/v1", "Thing")] {
            assert_eq!(parse(version, kind), Err(None), "{version} {kind}");
        }
        assert_eq!(FORM.parse::<Value>(b"[]"), Err(None));
        assert_eq!(FORM.parse::<Value>(b"{ half"), Err(None));
    }
}
