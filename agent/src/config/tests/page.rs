//! `docs/CONFIGURATION.md`: every key that the reader takes, what is accepted as the reader says it, defaults as they
//! are printed, meanings and examples as the example file has them. A key without a meaning fails.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml::{Table, Value};

use super::super::environment::SETTINGS;
use super::*;
use crate::docs::hold;

const EXAMPLE: &str = include_str!("../../../config/mountie.example.toml");

const HEAD: &str = "\
# Configuration

<!-- Made of agent/src/config and agent/config/mountie.example.toml by `cargo xtask docs`: change those. -->

The file is `/etc/mountie/config.toml`, or what `mountie run --config FILE` names. Without one every network, FUSE and
block-backed file system is watched and nothing is repaired. [mountie.example.toml](../agent/config/mountie.example.toml)
has every key, to copy from.

* Strength, weakest first: defaults, file, variables (`MOUNTIE_<SECTION>_<KEY>`), flags of `mountie run`.
* `mountie check-config FILE` tells every mistake at once, or prints what is in effect.
* `SIGHUP` (`systemctl reload mountie`) has the agent read it again; a wrong one changes nothing and is told. `[agent]` and
  `[kernel]` take effect at the next start.
* The file decides what root mounts: it must belong to root (or to whoever runs the agent), and nobody else may write it.
* No key takes a secret. Passwords belong into files that only root can read: `credentials=FILE` among the options, or
  `environment_file`.
* Durations are texts with a unit: `\"500ms\"`, `\"10s\"`, `\"2m\"`, `\"1h\"`.
* Paths are written as `mountie status` shows them: `\\xNN` is one byte, a backslash is `\\x5c`. In TOML that needs single
  quotes: `'/mnt/caf\\xe9'`.

Not in the file: `MOUNTIE_LOG` (`error`, `warn`, `info`, `debug`, `trace`, or filters such as `info,agent::probe=debug`) is
how much is logged. Where stderr is the journal (`JOURNAL_STREAM`), every line has its priority.
";

/// A table of the file: its heading, where its keys stand, and a file that has a line of it.
struct Place {
    heading: &'static str,
    about: &'static str,
    /// The section of the example in which its keys are explained.
    section: &'static str,
    /// The table of the printed configuration that has its defaults.
    defaults: &'static [&'static str],
    file: fn(&str) -> String,
}

const PLACES: [Place; 11] = [
    Place {
        heading: "`[agent]`",
        about: "The process itself.",
        section: "[agent]",
        defaults: &["agent"],
        file: |line| format!("[agent]\n{line}"),
    },
    Place {
        heading: "`[kernel]`",
        about: "The kernel programs.",
        section: "[kernel]",
        defaults: &["kernel"],
        file: |line| format!("[kernel]\n{line}"),
    },
    Place {
        heading: "`[defaults]`",
        about: "For every watched volume; each key may be repeated in a `[[volume]]`.",
        section: "[defaults]",
        defaults: &["defaults"],
        file: |line| format!("[defaults]\n{line}"),
    },
    Place {
        heading: "`probe = { … }`, in `[defaults]` and `[[volume]]`",
        about: "As whom probes look.",
        section: "probe",
        defaults: &[],
        file: |line| format!("[defaults.probe]\n{line}"),
    },
    Place {
        heading: "`[discovery]`",
        about: "Volumes that are found in the mount table without being named.",
        section: "[discovery]",
        defaults: &["discovery"],
        file: |line| format!("[discovery]\n{line}"),
    },
    Place {
        heading: "Entries of `include` and `exclude`",
        about: "All keys of one entry must match, and each needs at least one.",
        section: "selector",
        defaults: &[],
        file: |line| format!("[[discovery.include]]\n{line}"),
    },
    Place {
        heading: "`[[volume]]`",
        about: "An expected volume: its absence is a fault, also right after a start.",
        section: "[[volume]]",
        defaults: &["volume"],
        file: |line| format!("[[volume]]\n{line}"),
    },
    Place {
        heading: "`sentinel = { … }`, in `[[volume]]`",
        about: "A small file on the volume that probes read past the cache.",
        section: "sentinel",
        defaults: &[],
        file: |line| format!("[[volume]]\n[volume.sentinel]\n{line}"),
    },
    Place {
        heading: "`identity = { … }`, in `[[volume]]`",
        about: "What the file system must be.",
        section: "identity",
        defaults: &[],
        file: |line| format!("[[volume]]\n[volume.identity]\n{line}"),
    },
    Place {
        heading: "`[volume.repair]`",
        about: "How the volume before it is repaired, in mode `act` and by `mountie remount`.",
        section: "[volume.repair]",
        defaults: &["volume", "repair"],
        file: |line| format!("[[volume]]\n[volume.repair]\n{line}"),
    },
    Place {
        heading: "`hook = { … }`, in `[volume.repair]`",
        about: "Who is asked before each repair: `exec` or `url`, not both.",
        section: "hook",
        defaults: &[],
        file: |line| format!("[[volume]]\n[volume.repair.hook]\n{line}"),
    },
];

/// Keys of tables within a line, of which the example has one comment for all: place, key, meaning, example.
const WITHIN: [(&str, &str, &str, &str); 13] = [
    ("probe", "uid", "The user, by number.", "uid = 1000"),
    ("probe", "gid", "The group, by number.", "gid = 1000"),
    ("probe", "groups", "More groups, by number.", "groups = [27]"),
    ("selector", "fstype", "The type.", "fstype = \"nfs*\""),
    (
        "selector",
        "mountpoint",
        "The mount point. `*` stays within a directory, `**` crosses them.",
        "mountpoint = \"/srv/**\"",
    ),
    ("selector", "source", "What is mounted there.", "source = \"filer1:*\""),
    ("sentinel", "path", "The file, below the volume's root.", "path = \".mountie\""),
    (
        "sentinel",
        "content",
        "What it must contain; a line break at the end does not count. Without it any content is right.",
        "content = \"models-7f3a\"",
    ),
    (
        "identity",
        "uuid",
        "The UUID of a block device, as `blkid` prints it.",
        "uuid = \"0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9\"",
    ),
    ("identity", "fsid", "What `stat -f -c %i` prints.", "fsid = \"00000000deadbeef\""),
    (
        "hook",
        "exec",
        "A program and its arguments, no shell. It gets the evidence as JSON on its standard input.",
        "exec = [\"/etc/mountie/ask\"]",
    ),
    ("hook", "url", "An address to which the evidence is posted.", "url = \"http://127.0.0.1:8080/ask\""),
    (
        "hook",
        "timeout",
        "How long it may take to answer; no answer counts as a wait. Default: `\"10s\"`.",
        "timeout = \"10s\"",
    ),
];

/// What the example says of a key.
#[derive(Default)]
struct Told {
    meaning: String,
    example: String,
    /// The line that was taken for an example is commented out: a better one may come.
    is_comment: bool,
}

/// Every key of the example by its section: the comment above it, and its line. What is repeated adds an example where
/// there was none.
fn example() -> BTreeMap<(String, String), Told> {
    let mut told: BTreeMap<(String, String), Told> = BTreeMap::new();
    let (mut section, mut comment) = (String::new(), Vec::new());
    for line in EXAMPLE.lines() {
        let bare = line.strip_prefix("# ").unwrap_or(line);
        let key = bare.split_once(" = ").map(|(key, _)| key).filter(|key| is_key(key));
        match key {
            Some(key) => {
                let told = told.entry((section.clone(), key.to_owned())).or_default();
                if told.meaning.is_empty() {
                    told.meaning = meaning(&std::mem::take(&mut comment));
                }
                if told.example.is_empty() || (told.is_comment && bare == line) {
                    bare.clone_into(&mut told.example);
                    told.is_comment = bare != line;
                }
            }
            None if line.starts_with('[') => {
                line.clone_into(&mut section);
                comment.clear();
            }
            None if line.is_empty() => comment.clear(),
            None => comment.push(line.strip_prefix('#').unwrap_or(line)),
        }
    }
    told
}

fn is_key(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// A comment as a paragraph; lines that are set in become entries of a list.
fn meaning(comment: &[&str]) -> String {
    let mut text = String::new();
    let mut was_entry = false;
    for line in comment {
        let is_entry = line.starts_with("   ");
        if is_entry {
            let (word, rest) = entry(line.trim());
            let _ = write!(text, "{}* `{word}`: {rest}", if text.is_empty() { "" } else { "\n" });
        } else {
            let gap = match (text.is_empty(), was_entry) {
                (true, _) => "",
                (false, true) => "\n\n",
                (false, false) => "\n",
            };
            let _ = write!(text, "{gap}{}", line.trim());
        }
        was_entry = is_entry;
    }
    text
}

/// A word and what is said of it, which stands after two spaces.
fn entry(line: &str) -> (&str, &str) {
    line.split_once("  ").map_or((line, ""), |(word, rest)| (word, rest.trim()))
}

/// The first problem of a file that is wanted, with its key.
fn problem<T>(text: &str, wanted: impl Fn(&str, &Problem) -> Option<T>) -> Option<T> {
    let errors = Config::from_toml(text).err()?;
    errors.iter().find_map(|error| wanted(error.place.key(), &error.problem))
}

/// The keys that a table may have: what an unknown one is told.
fn keys(place: &Place) -> Vec<String> {
    let accepted = problem(&(place.file)("nonsense = 1"), |key, problem| match problem {
        Problem::UnknownKey { accepted, .. } if key.ends_with(".nonsense") => Some(accepted.clone()),
        _ => None,
    });
    accepted.expect("an unknown key is told").split(", ").map(str::to_owned).collect()
}

/// What is accepted: what somebody is told who writes a date, which no key takes.
fn accepted_by(place: &Place, key: &str) -> String {
    let end = format!(".{key}");
    let expected = problem(&(place.file)(&format!("{key} = 1979-05-27")), |at, problem| match problem {
        Problem::Value { expected, .. } if at.ends_with(&end) => Some(expected.clone()),
        _ => None,
    });
    expected.unwrap_or_else(|| panic!("{}: {key} takes a date", place.heading))
}

fn is_required(place: &Place, key: &str) -> bool {
    let end = format!(".{key}");
    let missing = |at: &str, problem: &Problem| {
        (at.ends_with(&end) && matches!(problem, Problem::Missing { .. })).then_some(())
    };
    problem(&(place.file)(""), missing).is_some()
}

/// What holds without the key, as it is printed.
fn default_of(place: &Place, key: &str) -> Option<String> {
    let printed = accepted("[[volume]]\nname = \"v\"\nmountpoint = \"/v\"\n").to_toml();
    let mut table: Table = printed.parse().expect("what is printed is TOML");
    for step in place.defaults {
        table = match table.remove(*step)? {
            Value::Table(table) => table,
            Value::Array(list) => list.into_iter().next()?.as_table()?.clone(),
            _ => return None,
        };
    }
    table.get(key).map(ToString::to_string)
}

fn page() -> String {
    let example = example();
    let mut page = HEAD.to_owned();
    for place in &PLACES {
        let _ = write!(page, "\n## {}\n\n{}\n", place.heading, place.about);
        let mut keys = keys(place);
        keys.sort_by_key(|key| place_in_example(place, key));
        for key in keys.iter().filter(|key| !is_table_of_its_own(place, key)) {
            page.push_str(&paragraph(place, key, &example));
        }
    }
    page
}

/// Where a key stands in the example, or among those that are told within a line.
fn place_in_example(place: &Place, key: &str) -> usize {
    let within = WITHIN.iter().position(|(section, name, ..)| (*section, *name) == (place.section, key));
    let section = EXAMPLE.find(&format!("\n{}\n", place.section)).unwrap_or(0);
    let key = format!("{key} = ");
    let line =
        EXAMPLE[section..].split('\n').position(|line| line.trim_start_matches("# ").starts_with(&key));
    within.or(line).unwrap_or(usize::MAX)
}

/// Tables that have a heading of their own, and no line.
fn is_table_of_its_own(place: &Place, key: &str) -> bool {
    place.section == "[[volume]]" && key == "repair"
}

fn paragraph(place: &Place, key: &str, example: &BTreeMap<(String, String), Told>) -> String {
    let told = example.get(&(place.section.to_owned(), key.to_owned()));
    let within = WITHIN.iter().find(|(section, name, ..)| (*section, *name) == (place.section, key));
    let is_repeated =
        place.section == "[[volume]]" && example.contains_key(&("[defaults]".to_owned(), key.to_owned()));
    let from_example = told.map(|told| told.meaning.as_str()).unwrap_or_default();
    let meaning = match within {
        Some((_, _, meaning, _)) => (*meaning).to_owned(),
        None if is_repeated => "As in `[defaults]`, for this volume alone.".to_owned(),
        // The comment above the first key of a section begins with what the section is.
        None => {
            from_example.strip_prefix(&place.about.replace('`', "")).unwrap_or(from_example).trim().to_owned()
        }
    };
    assert!(!meaning.is_empty(), "{}: nothing says what `{key}` means", place.heading);
    let line = within.map(|(.., line)| *line).or(told.map(|told| told.example.as_str())).unwrap_or_default();
    assert!(line.starts_with(key), "{}: `{key}` has no example", place.heading);

    let mut text = format!("\n### `{key}`\n\n{meaning}\n\n* accepted: {}\n", accepted_by(place, key));
    let default = default_of(place, key).filter(|_| !is_repeated);
    let _ = match (is_required(place, key), default) {
        (true, _) => writeln!(text, "* required"),
        (false, Some(default)) => writeln!(text, "* default: `{default}`"),
        (false, None) if is_repeated => writeln!(text, "* default: what `[defaults]` says"),
        (false, None) => Ok(()),
    };
    let section = place.section.trim_matches(['[', ']']);
    if let Some(setting) = SETTINGS.iter().find(|setting| setting.is(section, key)) {
        let flag = setting.flag().map(|flag| format!(", flag `{flag}`")).unwrap_or_default();
        let _ = writeln!(text, "* variable `{}`{flag}", setting.variable());
    }
    let _ = writeln!(text, "* example: `{line}`");
    text
}

#[test]
fn the_page_is_what_the_tables_give() {
    hold("CONFIGURATION.md", &page());
}

/// What the page says of a table.
fn part<'a>(page: &'a str, place: &Place) -> &'a str {
    let after = page.split(&format!("## {}\n", place.heading)).nth(1).expect("its heading");
    after.split("\n## ").next().unwrap_or_default()
}

/// The page is made of what the reader takes; these come from elsewhere.
#[test]
fn every_key_of_the_example_and_every_variable_is_on_the_page() {
    let page = page();
    let keys = example();
    assert!(keys.len() > 35, "{}", keys.len());
    for (section, key) in keys.keys() {
        let place = PLACES.iter().find(|place| place.section == section);
        let place = place.unwrap_or_else(|| panic!("{section}: the page knows no such table"));
        assert!(part(&page, place).contains(&format!("### `{key}`\n")), "{section}: {key}");
    }
    for setting in SETTINGS {
        assert!(page.contains(&setting.variable()), "{}", setting.variable());
    }
}
