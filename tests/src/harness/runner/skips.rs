//! The list of cases that may be skipped under `CI=true`: one a line, the name first and then the
//! reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Set to a file: the list of allowed skips. The flag `--allowed-skips FILE` goes before it.
const VARIABLE: &str = "MOUNTIE_ALLOWED_SKIPS";

/// Used when neither is given and it is there: Cargo starts tests in the folder of their package.
const DEFAULT: &str = "allowed-skips.txt";

/// Which cases may be skipped.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AllowedSkips {
    /// All: a person's own machine has what it has.
    All,
    /// Only these.
    Listed(BTreeSet<String>),
}

impl AllowedSkips {
    /// Reads the switch out of the arguments and hands the others back.
    pub(super) fn from_arguments(arguments: &[String]) -> Result<(Self, Vec<String>)> {
        let mut file = std::env::var(VARIABLE).ok();
        let mut rest = Vec::new();
        let mut left = arguments.iter();
        while let Some(argument) = left.next() {
            if argument == "--allowed-skips" {
                let Some(named) = left.next() else { bail!("--allowed-skips needs a file") };
                file = Some(named.clone());
            } else {
                rest.push(argument.clone());
            }
        }
        if std::env::var("CI").as_deref() != Ok("true") {
            return Ok((Self::All, rest));
        }
        let text = match file {
            Some(file) => fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?,
            None if Path::new(DEFAULT).is_file() => {
                fs::read_to_string(DEFAULT).with_context(|| format!("cannot read {DEFAULT}"))?
            }
            None => String::new(),
        };
        Ok((Self::parse(&text), rest))
    }

    fn parse(text: &str) -> Self {
        let names = text.lines().map(|line| line.split(['#', ' ']).next().unwrap_or_default());
        Self::Listed(names.filter(|name| !name.is_empty()).map(str::to_owned).collect())
    }

    pub(super) fn permits(&self, case: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(names) => names.contains(case),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AllowedSkips;

    #[test]
    fn a_list_permits_what_it_names_and_nothing_else() {
        let list = AllowedSkips::parse("# why\nbench::first no device here\n\nsecond\n");
        assert!(list.permits("bench::first") && list.permits("second"));
        assert!(!list.permits("first") && !list.permits("") && !list.permits("# why"));
    }
}
