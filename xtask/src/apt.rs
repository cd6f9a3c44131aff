//! apt with lists of its own: what it fetches leaves the host's own lists and sources as they are.

use std::fs::create_dir_all;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

/// Where its lists and its cache are, and what else it is told.
#[derive(Debug)]
pub(crate) struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// Makes the folder. The options are those of apt.conf(5), as `Key=value`.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub(crate) fn in_folder(folder: &Path, options: impl IntoIterator<Item = String>) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            create_dir_all(&part).with_context(|| format!("cannot make {}", part.display()))?;
        }
        let own = [("Dir::State::Lists", "lists"), ("Dir::Cache", "cache")];
        let own = own.map(|(key, part)| format!("{key}={}", folder.join(part).display()));
        let quiet = [
            // Folders that only root can enter are no place for apt's own user.
            "APT::Sandbox::User=root",
            // Hooks of the host are about its own lists.
            "APT::Update::Post-Invoke-Success::=",
            "Acquire::Languages=none",
            "DPkg::Lock::Timeout=300",
        ];
        let options = own.into_iter().chain(quiet.map(str::to_owned)).chain(options).collect();
        Ok(Self { folder: folder.to_owned(), options })
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// One of apt's programs, with the options.
    pub(crate) fn program(&self, name: &str) -> Command {
        let mut apt = Command::new(name);
        apt.arg("--quiet").args(self.options.iter().flat_map(|option| ["-o", option.as_str()]));
        apt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_cache_are_in_the_folder_and_own_options_come_last() {
        let folder = std::env::temp_dir().join(format!("mountie-apt-{}", std::process::id()));
        let apt = Apt::in_folder(&folder, ["A::B=c".to_owned()]).unwrap();
        let command = apt.program("apt-get");
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        assert!(words.contains(&format!("Dir::State::Lists={}", folder.join("lists").display())));
        assert_eq!(words.last().map(String::as_str), Some("A::B=c"));
        assert!(folder.join("cache/archives/partial").is_dir());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
