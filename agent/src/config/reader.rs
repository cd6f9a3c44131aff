//! A walk over the file's tables that notes every problem and goes on.
//!
//! A reader is asked for each key it may have; what nobody asked for is an unknown key. So the list of
//! accepted keys in an error can never differ from what is read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::environment::Overrides;
use super::error::{ConfigError, Place, Problem};
use super::scalar::{Rejected, Scalar};
use super::suggest::closest;
use super::{secret, show, unsupported};

/// What became of a key.
#[derive(Debug)]
pub(super) enum Given<T> {
    /// Not there; the place where it would be.
    Absent(Place),
    /// There, but wrong; the error has been noted.
    Broken,
    /// There, from this place.
    Is(T, Place),
}

impl<T> Given<T> {
    /// The value, if there is a good one.
    pub(super) fn value(self) -> Option<T> {
        match self {
            Self::Is(value, _) => Some(value),
            Self::Absent(_) | Self::Broken => None,
        }
    }

    /// Where the key is missing. A broken value is not missing: it has its own error.
    pub(super) fn missing(&self) -> Option<&Place> {
        match self {
            Self::Absent(place) => Some(place),
            Self::Broken | Self::Is(..) => None,
        }
    }
}

/// The text, what overrides it, and what has been found wrong so far.
pub(super) struct Document<'a> {
    text: &'a str,
    /// Where each line begins, but the first: every key and every value asks for its line.
    line_starts: Vec<usize>,
    overrides: Overrides,
    errors: RefCell<Vec<ConfigError>>,
}

impl<'a> Document<'a> {
    pub(super) fn new(text: &'a str, overrides: Overrides, errors: Vec<ConfigError>) -> Self {
        let line_starts = text.match_indices('\n').map(|(at, _)| at + 1).collect();
        Self { text, line_starts, overrides, errors: RefCell::new(errors) }
    }

    /// Notes a problem.
    pub(super) fn report(&self, place: Place, problem: Problem) {
        self.errors.borrow_mut().push(ConfigError { place, problem });
    }

    /// Everything noted.
    pub(super) fn into_errors(self) -> Vec<ConfigError> {
        self.errors.into_inner()
    }

    fn line_of<T>(&self, spanned: &Spanned<T>) -> Option<usize> {
        let offset = spanned.span().start;
        let lines_before = self.line_starts.partition_point(|start| *start <= offset);
        (offset <= self.text.len()).then_some(lines_before + 1)
    }
}

/// Line and column of a byte, both from 1. The column counts characters.
pub(super) fn position(text: &str, offset: usize) -> Option<(usize, usize)> {
    let before = text.get(..offset)?;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before.get(line_start..)?.chars().count();
    Some((before.bytes().filter(|byte| *byte == b'\n').count() + 1, column + 1))
}

/// One table of the file.
pub(super) struct Reader<'d, 'a> {
    document: &'d Document<'a>,
    table: Option<&'d DeTable<'a>>,
    place: Place,
    /// The key path without indices.
    pattern: String,
    asked: BTreeSet<&'static str>,
}

impl<'d, 'a> Reader<'d, 'a> {
    /// The whole file; `None` when there is none.
    pub(super) fn root(document: &'d Document<'a>, table: Option<&'d DeTable<'a>>) -> Self {
        Self::new(document, table, Place::new("", None), String::new())
    }

    fn new(
        document: &'d Document<'a>,
        table: Option<&'d DeTable<'a>>,
        place: Place,
        pattern: String,
    ) -> Self {
        Self { document, table, place, pattern, asked: BTreeSet::new() }
    }

    /// Where this table stands.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    fn pattern_of(&self, key: &str) -> String {
        if self.pattern.is_empty() { key.to_owned() } else { format!("{}.{key}", self.pattern) }
    }

    /// The value under a key and where it stands.
    fn find(&mut self, key: &'static str) -> (Option<&'d DeValue<'a>>, Place) {
        self.asked.insert(key);
        let entry = self.table.and_then(|table| table.iter().find(|(name, _)| name.get_ref() == key));
        let line = entry.and_then(|(name, _)| self.document.line_of(name));
        (entry.map(|(_, value)| value.get_ref()), self.place.child(key).on_line(line))
    }

    /// One value. The file's own is checked even when a variable or flag overrides it.
    pub(super) fn scalar<T: Scalar>(&mut self, key: &'static str) -> Given<T> {
        let (value, place) = self.find(key);
        let mut given = match value {
            None => Given::Absent(place),
            Some(value) => self.one(key, value, place),
        };
        for (text, place) in self.document.overrides.of(&self.pattern, key) {
            given = match T::from_text(text) {
                Ok(value) => Given::Is(value, place.clone()),
                Err(rejected) => {
                    self.reject::<T>(place.clone(), show::text(text), rejected);
                    Given::Broken
                }
            };
        }
        given
    }

    fn one<T: Scalar>(&self, key: &'static str, value: &DeValue<'_>, place: Place) -> Given<T> {
        if let Some(row) = unsupported::lookup(&self.pattern_of(key), value) {
            let what = match value {
                DeValue::Boolean(_) | DeValue::String(_) => format!("{key} = {}", show::value(value)),
                _ => key.to_owned(),
            };
            self.document.report(place, Problem::Unsupported { what, instead: row.instead });
            return Given::Broken;
        }
        match T::from_value(value) {
            Ok(value) => Given::Is(value, place),
            Err(rejected) => {
                self.reject::<T>(place, show::value(value), rejected);
                Given::Broken
            }
        }
    }

    fn reject<T: Scalar>(&self, place: Place, found: String, rejected: Rejected) {
        let Rejected { reason, advice } = rejected;
        let expected = T::expected().into_owned();
        self.document.report(place, Problem::Value { found, reason, expected, advice });
    }

    /// A value that must not hold a secret.
    pub(super) fn open_scalar<T: Scalar>(&mut self, key: &'static str) -> Given<T> {
        let (value, place) = self.find(key);
        if let Some(value) = value
            && self.reports_secret(value, &place)
        {
            return Given::Broken;
        }
        self.scalar(key)
    }

    fn reports_secret(&self, value: &DeValue<'_>, place: &Place) -> bool {
        let Some(name) = value.as_str().and_then(secret::name_in) else { return false };
        self.document.report(place.clone(), Problem::Secret { name });
        true
    }

    /// A list of values, none of which may hold a secret.
    pub(super) fn open_scalars<T: Scalar>(&mut self, key: &'static str) -> Given<Vec<T>> {
        let (value, place) = self.find(key);
        let Some(value) = value else { return Given::Absent(place) };
        if self.reports_secret(value, &place) {
            return Given::Broken;
        }
        let DeValue::Array(array) = value else {
            let advice = value.as_str().map(|text| format!("write [{}]", show::text(text)));
            self.wrong_type(place, value, &format!("a list, each entry {}", T::expected()), advice);
            return Given::Broken;
        };
        let mut values = Vec::new();
        let mut before = "";
        for (index, entry) in array.iter().enumerate() {
            let place = place.entry(index).on_line(self.document.line_of(entry));
            let word = entry.get_ref().as_str().unwrap_or_default();
            let flag = secret::flag_before(std::mem::replace(&mut before, word), word);
            if let Some(name) = flag {
                self.document.report(place, Problem::Secret { name });
                continue;
            }
            if self.reports_secret(entry.get_ref(), &place) {
                continue;
            }
            values.extend(self.one::<T>(key, entry.get_ref(), place).value());
        }
        // A list with a hole in it must not be taken for the list that was meant.
        if values.len() == array.len() { Given::Is(values, place) } else { Given::Broken }
    }

    /// A table under this key; an empty one when it is absent or not a table.
    pub(super) fn section(&mut self, key: &'static str) -> Self {
        self.table(key, "")
            .value()
            .unwrap_or_else(|| Self::new(self.document, None, self.place.child(key), self.pattern_of(key)))
    }

    /// A table under this key, if there is one.
    pub(super) fn table(&mut self, key: &'static str, example: &str) -> Given<Self> {
        let (value, place) = self.find(key);
        match value {
            None => Given::Absent(place),
            Some(DeValue::Table(table)) => {
                Given::Is(Self::new(self.document, Some(table), place.clone(), self.pattern_of(key)), place)
            }
            Some(other) => {
                let expected = if example.is_empty() {
                    format!("a section [{}]", self.pattern_of(key))
                } else {
                    example.to_owned()
                };
                self.wrong_type(place, other, &expected, None);
                Given::Broken
            }
        }
    }

    /// A list of tables: `[[key]]`, or inline.
    pub(super) fn tables(&mut self, key: &'static str, example: &str) -> Vec<Self> {
        let (value, place) = self.find(key);
        let array = match value {
            None => return Vec::new(),
            Some(DeValue::Array(array)) => array,
            Some(other) => {
                self.wrong_type(place, other, &format!("a list of tables: {example}"), None);
                return Vec::new();
            }
        };
        let mut tables = Vec::new();
        for (index, entry) in array.iter().enumerate() {
            let place = place.entry(index).on_line(self.document.line_of(entry));
            match entry.get_ref() {
                DeValue::Table(table) => {
                    tables.push(Self::new(self.document, Some(table), place, self.pattern_of(key)));
                }
                other => self.wrong_type(place, other, &format!("a table: {example}"), None),
            }
        }
        tables
    }

    fn wrong_type(&self, place: Place, value: &DeValue<'_>, expected: &str, advice: Option<String>) {
        let problem =
            Problem::Value { found: show::value(value), reason: "", expected: expected.to_owned(), advice };
        self.document.report(place, problem);
    }

    /// Reports what nobody asked for.
    pub(super) fn finish(self) {
        for (name, _) in self.table.into_iter().flatten() {
            let key = name.get_ref().as_ref();
            if self.asked.contains(key) {
                continue;
            }
            let problem = Problem::UnknownKey {
                suggestion: closest(key, self.asked.iter().copied()).map(str::to_owned),
                accepted: self.asked.iter().copied().collect::<Vec<_>>().join(", "),
            };
            let shown = if secret::name_in(key).is_some() { "(a key with a secret in it)" } else { key };
            self.document.report(self.place.child(shown).on_line(self.document.line_of(name)), problem);
        }
    }
}
