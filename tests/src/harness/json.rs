//! Answers and files in JSON.

use serde_json::Value;

/// What stands at a path such as `/trouble/reason`; null where nothing does.
#[must_use]
pub fn part<'a>(value: &'a Value, path: &str) -> &'a Value {
    value.pointer(path).unwrap_or(&Value::Null)
}
