//! Programs whose output matters only when they fail.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Runs to the end and returns what was printed; on failure the error has the end of what was said.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("failed to start {name}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{name} ended with {}:\n{}", output.status, tail(&String::from_utf8_lossy(&said), 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The last lines of a text.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all.iter().skip(all.len().saturating_sub(lines)).copied().collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_end_of_what_was_said() {
        let error = quiet(Command::new("sh").args(["-c", "seq 1 30; exit 3"])).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.ends_with("29\n30"), "{error}");
        assert!(!error.contains("\n10\n"), "{error}");
        assert_eq!(quiet(Command::new("echo").arg("x")).unwrap(), "x\n");
    }
}
