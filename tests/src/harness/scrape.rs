//! Reads the Prometheus text format, and is strict about it: one HELP and one TYPE before the samples of a
//! family, families in one piece, no series twice, names and escapes as the format says. What a real server
//! would refuse is an error here too, so that every case also checks the exporter.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};

/// One scrape.
#[derive(Clone, Default, PartialEq, Debug)]
pub struct Scrape {
    series: BTreeMap<(String, Labels), f64>,
    types: BTreeMap<String, String>,
}

/// Label names and values.
pub type Labels = BTreeMap<String, String>;

const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

impl Scrape {
    /// Parses a whole body.
    ///
    /// # Errors
    /// At the first line that breaks a rule, with its number.
    pub fn parse(text: &str) -> Result<Self> {
        ensure!(text.ends_with('\n'), "the last line has no end");
        let mut scrape = Self::default();
        let mut state = State::default();
        for (number, line) in text.lines().enumerate() {
            scrape.take(line, &mut state).with_context(|| format!("line {}: {line}", number + 1))?;
        }
        Ok(scrape)
    }

    /// The value of the one series that has at least these labels.
    ///
    /// # Errors
    /// When there are several.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Result<Option<f64>> {
        let mut found = self.matching(name, labels);
        match (found.next(), found.next()) {
            (Some(_), Some(_)) => bail!("more than one series {name}{labels:?}"),
            (first, _) => Ok(first.map(|(_, value)| value)),
        }
    }

    /// The same, where the series must be there.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Result<f64> {
        self.find(name, labels)?.with_context(|| format!("no series {name}{labels:?}"))
    }

    /// The sum over all series that have at least these labels.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|(_, value)| value).sum()
    }

    /// All series of a name that have at least these labels.
    pub fn matching(&self, name: &str, labels: &[(&str, &str)]) -> impl Iterator<Item = (&Labels, f64)> {
        let has_all =
            |have: &Labels| labels.iter().all(|(key, value)| have.get(*key).is_some_and(|v| v == value));
        let wanted: Vec<_> =
            self.series.iter().filter(|((have, set), _)| have == name && has_all(set)).collect();
        wanted.into_iter().map(|((_, set), value)| (set, *value))
    }

    /// What is set and what was counted, one series a line: for people who look at a failed case.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = String::from("the last scrape, without zeros and histograms:\n");
        for ((name, labels), value) in &self.series {
            if *value != 0.0 && !name.ends_with("_bucket") {
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                text += &format!("  {name} {{{}}} {value}\n", labels.join(", "));
            }
        }
        text
    }

    fn take(&mut self, line: &str, state: &mut State) -> Result<()> {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let name = rest.split(' ').next().unwrap_or_default();
            state.open(name)?;
            ensure!(state.helped.insert(name.to_owned()), "a second HELP");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').context("a TYPE without a type")?;
            ensure!(TYPES.contains(&kind), "no such type");
            state.open(name)?;
            ensure!(self.types.insert(name.to_owned(), kind.to_owned()).is_none(), "a second TYPE");
        } else if !line.starts_with('#') && !line.is_empty() {
            let (name, labels, value) = sample(line)?;
            let family = self.family(&name);
            ensure!(state.current.as_deref() == Some(family.as_str()), "outside of its family");
            ensure!(
                self.types.contains_key(&family) && state.helped.contains(&family),
                "before HELP and TYPE"
            );
            ensure!(self.series.insert((name, labels), value).is_none(), "a series twice");
        }
        Ok(())
    }

    /// The family of a sample: histograms and summaries have samples with a suffix.
    fn family(&self, name: &str) -> String {
        for suffix in ["_bucket", "_sum", "_count"] {
            let base = name.strip_suffix(suffix).unwrap_or_default();
            if self.types.get(base).is_some_and(|kind| kind == "histogram" || kind == "summary") {
                return base.to_owned();
            }
        }
        name.to_owned()
    }
}

/// Which family is open, and which are closed for good.
#[derive(Default)]
struct State {
    current: Option<String>,
    seen: BTreeSet<String>,
    helped: BTreeSet<String>,
}

impl State {
    fn open(&mut self, name: &str) -> Result<()> {
        ensure!(is_name(name, true), "not a metric name: {name}");
        if self.current.as_deref() != Some(name) {
            ensure!(self.seen.insert(name.to_owned()), "a family in two pieces");
            self.current = Some(name.to_owned());
        }
        Ok(())
    }
}

fn is_name(name: &str, colon: bool) -> bool {
    let good = |(index, c): (usize, char)| {
        c.is_ascii_alphabetic() || c == '_' || (colon && c == ':') || (index > 0 && c.is_ascii_digit())
    };
    !name.is_empty() && name.chars().enumerate().all(good)
}

fn sample(line: &str) -> Result<(String, Labels, f64)> {
    let end = line.find(['{', ' ']).context("a sample without a value")?;
    let (name, mut rest) = line.split_at(end);
    ensure!(is_name(name, true), "not a metric name: {name}");
    let mut labels = Labels::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = take_labels(inside, &mut labels)?;
    }
    let value = rest.strip_prefix(' ').context("no space before the value")?;
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().with_context(|| format!("not a value: {number}"))?,
    };
    Ok((name.to_owned(), labels, value))
}

/// Reads `key="value",…}` and returns what follows.
fn take_labels<'a>(mut rest: &'a str, labels: &mut Labels) -> Result<&'a str> {
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Ok(after);
        }
        let (key, after) = rest.split_once("=\"").context("a label without a value")?;
        ensure!(is_name(key, false), "not a label name: {key}");
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next().context("a label value without an end")? {
                (index, '"') => break index + 1,
                (_, '\\') => value.push(match characters.next() {
                    Some((_, 'n')) => '\n',
                    Some((_, c @ ('\\' | '"'))) => c,
                    other => bail!("an odd escape: {other:?}"),
                }),
                (_, c) => value.push(c),
            }
        };
        ensure!(labels.insert(key.to_owned(), value).is_none(), "the label {key} twice");
        rest = after.get(end..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix(',') {
            rest = after;
        } else {
            ensure!(rest.starts_with('}'), "no comma between labels");
        }
    }
}

#[cfg(test)]
mod tests;
