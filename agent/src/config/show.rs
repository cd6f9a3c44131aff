//! How a value that was found is shown in an error: short, on one line, and never with a secret.

use toml::de::DeValue;

use super::secret;

const LONGEST: usize = 80;

/// A value of the file.
pub(super) fn value(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(found) => text(found),
        DeValue::Integer(found) => found.to_string(),
        DeValue::Float(found) => found.to_string(),
        DeValue::Boolean(found) => found.to_string(),
        DeValue::Datetime(found) => found.to_string(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// A text, quoted.
pub(super) fn text(text: &str) -> String {
    if secret::name_in(text).is_some() {
        return "a text with a secret in it (not shown)".to_owned();
    }
    let shown: String = text.chars().take(LONGEST).flat_map(char::escape_debug).collect();
    let rest = if text.chars().nth(LONGEST).is_some() { "…" } else { "" };
    format!("\"{shown}{rest}\"")
}
