//! What a hook answers: one JSON object, `{"answer": "wait", "seconds": 30, "text": "maintenance"}`.

use std::time::Duration;

use agent_core::remediation::asking::Answer;
use serde_json::{Map, Value};

/// Why an answer cannot be understood.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AnswerError {
    /// No JSON.
    #[error("the answer is no JSON object: {0}")]
    Json(#[source] serde_json::Error),
    /// An object without a known word.
    #[error("\"answer\" must be one of resolved, remount, wait, escalate")]
    Word,
    /// A wait without a time.
    #[error("\"wait\" needs \"seconds\", a number that is not negative")]
    Seconds,
    /// A text that is none.
    #[error("\"text\" must be a text")]
    Text,
}

/// Reads an answer, and what the hook says besides. Keys that are not known are left for later versions.
pub(crate) fn parse(body: &[u8]) -> Result<(Answer, String), AnswerError> {
    let object: Map<String, Value> = serde_json::from_slice(body).map_err(AnswerError::Json)?;
    let text = match object.get("text") {
        None | Some(Value::Null) => String::new(),
        Some(text) => text.as_str().ok_or(AnswerError::Text)?.to_owned(),
    };
    let answer = match object.get("answer").and_then(Value::as_str) {
        Some("resolved") => Answer::Resolved,
        Some("remount") => Answer::Remount,
        Some("escalate") => Answer::Escalate,
        Some("wait") => {
            let seconds = object.get("seconds").and_then(Value::as_f64).ok_or(AnswerError::Seconds)?;
            // More than a duration holds is more than anybody grants.
            let time = if seconds >= 1e9 { Ok(Duration::MAX) } else { Duration::try_from_secs_f64(seconds) };
            Answer::Wait(time.map_err(|_| AnswerError::Seconds)?)
        }
        Some(_) | None => return Err(AnswerError::Word),
    };
    Ok((answer, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Option<Answer> {
        parse(text.as_bytes()).ok().map(|(answer, _)| answer)
    }

    #[test]
    fn the_four_answers_are_understood() {
        assert_eq!(answer(r#"{"answer":"resolved"}"#), Some(Answer::Resolved));
        assert_eq!(answer(" {\"answer\": \"remount\", \"more\": [1]}\n"), Some(Answer::Remount));
        assert_eq!(answer(r#"{"answer":"escalate","text":null}"#), Some(Answer::Escalate));
        let wait = |seconds| answer(&format!("{{\"answer\":\"wait\",\"seconds\":{seconds}}}"));
        assert_eq!(wait("30"), Some(Answer::Wait(Duration::from_secs(30))));
        assert_eq!(wait("0.5"), Some(Answer::Wait(Duration::from_millis(500))));
        assert_eq!(wait("1e300"), Some(Answer::Wait(Duration::MAX)));
        let (_, text) = parse(br#"{"answer":"remount","text":"go on"}"#).unwrap();
        assert_eq!(text, "go on");
    }

    #[test]
    fn anything_else_is_none() {
        for text in [
            "",
            "remount",
            "\"remount\"",
            "[]",
            "{}",
            r#"{"answer":"Remount"}"#,
            r#"{"answer":7}"#,
            r#"{"answer":"wait"}"#,
            r#"{"answer":"wait","seconds":-1}"#,
            r#"{"answer":"wait","seconds":"30"}"#,
            r#"{"answer":"wait","seconds":null}"#,
            r#"{"answer":"remount","text":7}"#,
            r#"{"answer":"remount"}{"answer":"remount"}"#,
            "{\"answer\":\"remount\"",
        ] {
            assert_eq!(answer(text), None, "{text}");
        }
        assert!(parse(&[0xff; 40]).is_err());
    }
}
