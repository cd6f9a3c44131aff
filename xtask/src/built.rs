//! The test binaries that cargo builds, by the names of their targets.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Builds without running. The command is `cargo`, and what is to be built is added by the caller.
pub(crate) fn tests(cargo: &mut Command) -> Result<BTreeMap<String, PathBuf>> {
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = cargo.stderr(Stdio::inherit()).output().context("failed to start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

/// The executables in the messages of cargo.
fn executables(messages: &str) -> BTreeMap<String, PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let name = message.pointer("/target/name")?.as_str()?.to_owned();
            Some((name, PathBuf::from(message.get("executable")?.as_str()?)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executables_are_found_in_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"agent"},"executable":null}
not json
{"reason":"compiler-artifact","target":{"name":"swap"},"executable":"/t/swap-1"}
"#;
        let found = executables(messages);
        assert_eq!(found, BTreeMap::from([("swap".to_owned(), PathBuf::from("/t/swap-1"))]));
    }
}
