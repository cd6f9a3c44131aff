//! What a child process of the agent's own finds in its environment: nothing of the agent's.

use std::process::Command;

/// What goes on to children all the same. Only in builds that count which lines are run: without it each child would
/// leave its counts wherever it works.
const HANDED_ON: &[&str] = if cfg!(coverage) { &["LLVM_PROFILE_FILE"] } else { &[] };

/// Takes the agent's own environment away from a command.
pub fn clear(command: &mut Command) {
    command.env_clear();
    for name in HANDED_ON {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_finds_nothing_but_what_it_is_given() {
        let mut command = Command::new("env");
        clear(&mut command);
        let output = command.env("GIVEN", "x").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split('=').next()).collect();
        assert!(names.contains(&"GIVEN"), "{text}");
        assert!(names.iter().all(|name| *name == "GIVEN" || HANDED_ON.contains(name)), "{text}");
    }
}
