//! Answers as YAML in which nothing deceives the eye.

use agent_core::path::is_deceptive;
use serde::ser::{Serialize, SerializeMap as _, SerializeSeq as _, Serializer};
use serde_json::Value;
use serde_saphyr::DoubleQuoted;
use serde_saphyr::ser::Error;

/// The answer as YAML. Characters that turn a line around or cannot be seen are written as escapes, which double quotes
/// allow and mean the same.
pub(super) fn visible<T: Serialize>(answer: &T) -> Result<String, Error> {
    let text = serde_saphyr::to_string(answer)?;
    let is_hidden = |c: char| c != '\n' && is_deceptive(c);
    if !text.contains(is_hidden) {
        return Ok(text);
    }
    // Which of its texts are quoted is up to the writer of YAML, unless it is told.
    let Ok(value) = serde_json::to_value(answer) else { return Ok(escaped(&text)) };
    serde_saphyr::to_string(&Quoted(&value)).map(|text| escaped(&text))
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match u32::from(c) {
            _ if c == '\n' || !is_deceptive(c) => out.push(c),
            number @ ..=0xffff => out.push_str(&format!("\\u{number:04X}")),
            number => out.push_str(&format!("\\U{number:08X}")),
        }
    }
    out
}

/// The same value, with every text that could deceive in double quotes.
struct Quoted<'a>(&'a Value);

impl Serialize for Quoted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::String(text) if text.contains(is_deceptive) => DoubleQuoted(text).serialize(serializer),
            Value::Array(values) => {
                let mut list = serializer.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| list.serialize_element(&Quoted(value)))?;
                list.end()
            }
            Value::Object(values) => {
                let mut map = serializer.serialize_map(Some(values.len()))?;
                values.iter().try_for_each(|(key, value)| map.serialize_entry(key, &Quoted(value)))?;
                map.end()
            }
            other => other.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn nothing_in_yaml_deceives_the_eye_and_it_means_the_same() {
        let nasty = "a\u{202e}b: \u{e0041}\u{fe0f}\u{feff}\n\u{200b}\"'\\ #é日";
        let answer = json!({ "volumes": [{ "id": nasty, "plain": "é", "number": 1.5, "none": null }, nasty, "\u{200b}"] });
        let text = visible(&answer).unwrap();
        assert!(!text.contains(|c: char| c != '\n' && is_deceptive(c)), "{text:?}");
        assert!(text.contains("é日") && text.contains("\\U000E0041"), "{text}");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).unwrap(), answer, "{text}");
        // What needs nothing stays as it was.
        let answer = json!({ "b": "x y", "a": ["é"] });
        assert_eq!(visible(&answer).unwrap(), serde_saphyr::to_string(&answer).unwrap());
    }
}
