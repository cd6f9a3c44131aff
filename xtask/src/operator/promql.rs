//! What a query uses: metrics with their matchers, and labels by which it groups and joins. Whether it is PromQL at
//! all Prometheus itself says, in `surface`; here it is only read for names.

use std::collections::BTreeSet;

/// A condition on a label.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Matcher {
    pub(crate) label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub(crate) sign: String,
    pub(crate) value: String,
}

/// A metric in a query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) matchers: Vec<Matcher>,
}

/// What a query uses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Uses {
    pub(crate) selectors: Vec<Selector>,
    /// Labels after `by`, `without`, `on`, `ignoring` and the two groups.
    pub(crate) labels: BTreeSet<String>,
    /// The same, list by list: those of `by` and `on`, which say what is one and the same.
    pub(crate) keys: Vec<BTreeSet<String>>,
    /// Texts outside of matchers: `label_replace` makes labels of them.
    pub(crate) texts: BTreeSet<String>,
}

/// Words with a list of labels behind them.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
/// … that say by which labels series belong together.
const KEYS: [&str; 2] = ["by", "on"];
/// Words that are no metrics.
const KEYWORDS: [&str; 7] = ["and", "or", "unless", "bool", "offset", "inf", "nan"];

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Text(String),
    Sign(String),
}

/// Reads a query.
///
/// # Errors
/// When a text, a range or a list has no end, or a selector no name.
pub(crate) fn uses(query: &str) -> Result<Uses, String> {
    let tokens = tokens(query)?;
    let mut uses = Uses::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            Token::Text(text) => {
                uses.texts.insert(text.clone());
            }
            Token::Sign(sign) if sign == "{" => return Err("a selector without a metric".to_owned()),
            Token::Sign(_) => {}
            Token::Word(word) => {
                let opens = |sign: &str| tokens.get(at) == Some(&Token::Sign(sign.to_owned()));
                if LISTS.contains(&word.as_str()) {
                    if opens("(") {
                        let mut labels = BTreeSet::new();
                        at = list(&tokens, at + 1, &mut labels)?;
                        uses.labels.extend(labels.iter().cloned());
                        uses.keys.extend(KEYS.contains(&word.as_str()).then_some(labels));
                    }
                } else if opens("(")
                    || is_aggregation(&tokens, at)
                    || KEYWORDS.contains(&word.to_ascii_lowercase().as_str())
                {
                    // A function, an operator, or a number in words.
                } else {
                    let mut matchers = Vec::new();
                    if opens("{") {
                        at = braces(&tokens, at + 1, &mut matchers)?;
                    }
                    uses.selectors.push(Selector { metric: word.clone(), matchers });
                }
            }
        }
    }
    Ok(uses)
}

/// Whether what stands in front is an aggregation with its labels first: `sum by (…) (…)`.
fn is_aggregation(tokens: &[Token], at: usize) -> bool {
    matches!(tokens.get(at), Some(Token::Word(word)) if word == "by" || word == "without")
}

/// The labels up to the closing bracket; where it goes on.
fn list(tokens: &[Token], mut at: usize, labels: &mut BTreeSet<String>) -> Result<usize, String> {
    loop {
        match tokens.get(at) {
            Some(Token::Word(label)) => {
                labels.insert(label.clone());
            }
            Some(Token::Sign(sign)) if sign == ")" => return Ok(at + 1),
            Some(Token::Sign(sign)) if sign == "," => {}
            other => return Err(format!("not a list of labels: {other:?}")),
        }
        at += 1;
    }
}

/// The matchers up to the closing brace; where it goes on.
fn braces(tokens: &[Token], mut at: usize, matchers: &mut Vec<Matcher>) -> Result<usize, String> {
    loop {
        match tokens.get(at..).unwrap_or_default() {
            [Token::Sign(sign), ..] if sign == "}" => return Ok(at + 1),
            [Token::Sign(sign), ..] if sign == "," => at += 1,
            [Token::Word(label), Token::Sign(sign), Token::Text(value), ..] => {
                matchers.push(Matcher { label: label.clone(), sign: sign.clone(), value: value.clone() });
                at += 3;
            }
            other => return Err(format!("not a matcher: {:?}", other.first())),
        }
    }
}

fn tokens(query: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = query.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        let length = match first {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => {
                let (text, length) = quoted(rest, first)?;
                tokens.push(Token::Text(text));
                length
            }
            '[' => rest.find(']').ok_or("a range without an end")? + 1,
            // Numbers and times: 0.99, 1e9, 5m.
            '0'..='9' | '.' => {
                rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '.')).unwrap_or(rest.len())
            }
            c if is_in_word(c) => {
                let length = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest.get(..length).unwrap_or_default().to_owned()));
                length
            }
            c => {
                let long =
                    ["=~", "!~", "!=", "==", ">=", "<="].into_iter().find(|sign| rest.starts_with(sign));
                let sign = long.map_or_else(|| c.to_string(), str::to_owned);
                let length = sign.len();
                tokens.push(Token::Sign(sign));
                length
            }
        };
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    Ok(tokens)
}

/// A text in quotation marks, and how long it is with them.
fn quoted(rest: &str, mark: char) -> Result<(String, usize), String> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
            c if c == mark => return Ok((text, at + c.len_utf8())),
            c => text.push(c),
        }
    }
    Err("a text without an end".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_matchers_and_labels_are_found() {
        let query = "histogram_quantile(0.99, sum by (le) (rate(m_bucket{volume=~\"$volume\", a!=\"b\\\"c\"}[$__rate_interval])))\n\
                     # a note with words\n\
                     and on (job, instance) group_left () (m:count >= 1e9 offset 5m)";
        let found = uses(query).unwrap();
        let names: Vec<&str> = found.selectors.iter().map(|selector| selector.metric.as_str()).collect();
        assert_eq!(names, ["m_bucket", "m:count"]);
        let matcher = |label: &str, sign: &str, value: &str| Matcher {
            label: label.to_owned(),
            sign: sign.to_owned(),
            value: value.to_owned(),
        };
        let expected = [matcher("volume", "=~", "$volume"), matcher("a", "!=", "b\"c")];
        assert_eq!(found.selectors[0].matchers, expected);
        assert_eq!(found.labels, ["instance", "job", "le"].map(str::to_owned).into());
        let keys = [BTreeSet::from(["le".to_owned()]), ["instance", "job"].map(str::to_owned).into()];
        assert_eq!(found.keys, keys);
    }

    #[test]
    fn texts_of_functions_are_kept() {
        let found = uses("label_replace(m, \"server\", \"$1\", \"name\", '(.+)')").unwrap();
        assert!(found.texts.contains("server") && found.texts.contains("(.+)"));
    }

    #[test]
    fn what_has_no_end_is_told() {
        for query in ["m{a=\"b\"", "m{a=b}", "m[5m", "m{a=\"b}", "sum by (a (m)", "{a=\"b\"}"] {
            assert!(uses(query).is_err(), "{query}");
        }
    }
}
