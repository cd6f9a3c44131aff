//! Packages of a suite that this host does not use: apt with lists of its own, so that the host's stay as they
//! are.

use std::fs::{self, File, create_dir_all};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::quietly::quiet;

use super::cache;

/// Signs every suite of Debian.
pub(crate) const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Used where this host names no mirror.
const DEFAULT_MIRROR: &str = "http://deb.debian.org/debian";

/// What is known of a package that can be downloaded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// Its version.
    pub(crate) version: String,
    /// Names of what it depends on, without versions; alternatives count each.
    pub(crate) depends: Vec<String>,
}

/// The packages of one suite.
pub(crate) struct Suite {
    name: String,
    apt: Apt,
    /// apt refuses a second process on the same lists; this one waits.
    _lock: File,
}

impl Suite {
    /// Fetches the lists of a suite, into a folder of their own below that of the cache.
    pub(crate) fn fetch(name: &str, folder: &Path) -> Result<Self> {
        let folder = folder.join("apt").join(name);
        let sources = folder.join("sources.list");
        let alone = [
            format!("Dir::Etc::SourceList={}", sources.display()),
            "Dir::Etc::SourceParts=/dev/null".to_owned(),
            "Dir::Etc::Preferences=/dev/null".to_owned(),
            "Dir::Etc::PreferencesParts=/dev/null".to_owned(),
            "Dir::State::status=/dev/null".to_owned(),
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false".to_owned(),
        ];
        let apt = Apt::in_folder(&folder, alone)?;
        let lock = cache::lock(&folder, "suite")?;
        fs::write(&sources, format!("deb [signed-by={KEYRING}] {} {name} main\n", url(name, &mirror())))
            .with_context(|| format!("cannot write {}", sources.display()))?;
        let suite = Self { name: name.to_owned(), apt, _lock: lock };
        let remedy = || format!("cannot fetch the package lists of {name}: is the mirror reachable?");
        quiet(suite.apt.program("apt-get").arg("update")).with_context(remedy)?;
        Ok(suite)
    }

    /// Everything that can be downloaded and whose name begins so.
    pub(crate) fn available(&self, start: &str) -> Result<Vec<Package>> {
        let index = quiet(self.apt.program("apt-cache").arg("dumpavail"))?;
        Ok(parse_index(&index, start))
    }

    /// Downloads packages into a folder; apt checks their hashes. A version that is not named is the newest.
    pub(crate) fn download(&self, packages: &[&Package], into: &Path) -> Result<()> {
        create_dir_all(into).with_context(|| format!("cannot make {}", into.display()))?;
        let names = packages.iter().map(|package| match package.version.as_str() {
            "" => package.name.clone(),
            version => format!("{}={version}", package.name),
        });
        quiet(self.apt.program("apt-get").current_dir(into).arg("download").args(names))
            .with_context(|| format!("cannot download from {}", self.name))
            .map(drop)
    }
}

/// The mirror that this host is configured for.
pub(crate) fn mirror() -> String {
    let files = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let texts = files.iter().filter_map(|file| fs::read_to_string(file).ok());
    texts.filter_map(|text| find_mirror(&text)).next().unwrap_or_else(|| DEFAULT_MIRROR.to_owned())
}

fn find_mirror(sources: &str) -> Option<String> {
    let lines = sources.lines().filter(|line| line.starts_with("URIs:") || line.starts_with("deb "));
    let mut words = lines.flat_map(str::split_whitespace).map(|word| word.trim_end_matches('/'));
    words.find(|word| word.contains("://") && word.ends_with("/debian")).map(str::to_owned)
}

/// Security updates are in an archive of their own, beside the other.
fn url(suite: &str, mirror: &str) -> String {
    let archive = if suite.ends_with("-security") { "-security" } else { "" };
    format!("{mirror}{archive}")
}

/// The code name of the Debian that this host runs. The guests run the same, so that what was built here runs
/// there.
pub(crate) fn codename() -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
    let field = |key: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    match (field("ID").as_deref(), field("VERSION_CODENAME")) {
        (Some("debian"), Some(codename)) => Ok(codename),
        _ => bail!(
            "the guests are made of the host's own Debian, and this host is none: run it in a container of Debian"
        ),
    }
}

/// Reads an index of packages: stanzas of `Key: value` lines with an empty line between them.
fn parse_index(index: &str, start: &str) -> Vec<Package> {
    let stanzas = index.split("\n\n").map(parse_stanza);
    stanzas.filter(|package| !package.version.is_empty() && package.name.starts_with(start)).collect()
}

fn parse_stanza(stanza: &str) -> Package {
    let mut package = Package::default();
    for line in stanza.lines() {
        match line.split_once(": ") {
            Some(("Package", name)) => package.name = name.trim().to_owned(),
            Some(("Version", version)) => package.version = version.trim().to_owned(),
            Some(("Depends" | "Pre-Depends", list)) => package.depends.extend(
                list.split([',', '|']).filter_map(|entry| entry.split_whitespace().next()).map(str::to_owned),
            ),
            _ => {}
        }
    }
    package
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_read_stanza_by_stanza() {
        let index = "\
Package: linux-image-1-amd64
Version: 1.2-3
Depends: kmod, linux-base (>= 4.3~), a | linux-modules-1 (= 1.2-3)
Description: a kernel
 Version: not this one

Package: other
Version: 1

Package: linux-image-broken
";
        let found = parse_index(index, "linux-image-");
        let depends = ["kmod", "linux-base", "a", "linux-modules-1"].map(str::to_owned).to_vec();
        let expected =
            Package { name: "linux-image-1-amd64".to_owned(), version: "1.2-3".to_owned(), depends };
        assert_eq!(found, [expected]);
        assert_eq!(parse_index(index, "").len(), 2);
        assert!(parse_index("", "").is_empty());
    }

    #[test]
    fn the_mirror_is_read_in_both_formats() {
        let new = "Types: deb\n# http://old/debian\nURIs: http://mirror/debian/\nSuites: x\n";
        assert_eq!(find_mirror(new).as_deref(), Some("http://mirror/debian"));
        let old = "deb [signed-by=/k] https://m/debian-security x main\ndeb https://m/debian x main\n";
        assert_eq!(find_mirror(old).as_deref(), Some("https://m/debian"));
        assert_eq!(find_mirror("# nothing\n"), None);
    }

    #[test]
    fn security_suites_are_in_another_archive() {
        assert_eq!(url("x-security", "http://m/debian"), "http://m/debian-security");
        assert_eq!(url("x-backports", "http://m/debian"), "http://m/debian");
    }
}
