//! What the loader accepts, what it refuses and in which words, what overrides what.

use super::*;

mod errors;
mod example;
mod layers;
mod page;
mod print;

/// All errors of a file, one a line.
fn errors(text: &str) -> String {
    match Config::from_toml(text) {
        Ok(config) => panic!("accepted:\n{}", config.to_toml()),
        Err(errors) => errors.to_string(),
    }
}

/// The one error of a file.
fn error(text: &str) -> String {
    let all = errors(text);
    assert_eq!(all.lines().count(), 1, "one error expected, got:\n{all}");
    all.strip_prefix("error: config: ").expect("the prefix").to_owned()
}

/// A volume with these further lines.
fn volume(lines: &str) -> String {
    format!("[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/v\"\n{lines}\n")
}

fn accepted(text: &str) -> Config {
    Config::from_toml(text).unwrap_or_else(|errors| panic!("{errors}"))
}
