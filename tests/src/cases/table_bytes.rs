//! The bytes of the mount table: whatever may stand there names a mount, and costs no other.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, Setup, Volume, toml_string};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::mnt_ns::{bind, detach, mount_from, only_mount_at, path_from_bytes, table};
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use integration_tests::harness::words;

const TIMEOUT: Duration = Duration::from_secs(150);
const ROOT: &[Need] = &[Need::Root];

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "mount_points_of_any_bytes_are_watched_under_names_of_their_own",
        needs: ROOT,
        timeout: TIMEOUT,
        run: any_bytes,
    },
    Case { name: "sources_of_any_bytes_are_shown_as_they_are", needs: ROOT, timeout: TIMEOUT, run: sources },
    Case { name: "lines_of_many_pages_are_read_whole", needs: ROOT, timeout: TIMEOUT, run: long_lines },
    Case {
        name: "lines_that_are_broken_cost_those_lines_and_no_volume",
        needs: ROOT,
        timeout: TIMEOUT,
        run: broken_lines,
    },
    Case {
        name: "a_bind_whose_directory_was_removed_is_watched_on",
        needs: ROOT,
        timeout: TIMEOUT,
        run: removed_root,
    },
];

/// What has broken readers, exporters and shells.
const NAMES: &[&[u8]] = &[
    b"new\nline",
    b"carriage\rreturn",
    b"tab\tand space ",
    b" - ",
    b"-",
    b"back\\slash",
    b"\\040",
    b"\\134\\012",
    b"hash#sign",
    b"quo\"te",
    b"{a=\"b\",c=\"d\"} 1",
    b"comma,equals=colon:",
    b"percent%20%",
    b"\x01\x1b[31m\x7f",
    b"latin1\xe9",
    b"latin1\xe8",
    b"\xff\xfe",
    b"\xe2\x82",
    "schön ☃ 漢字".as_bytes(),
    b"star*ques?[tion]",
    b"..a",
    b"//deleted".split_at(2).1,
    b"x//deleted".split_at(3).1,
];

fn discovery(bench: &Bench) -> String {
    let pattern = toml_string(&format!("{}/odd/**", bench.directory().display()));
    format!(
        "[defaults]\ninterval = \"500ms\"\ndeadline = \"2s\"\n\
         [discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern}, fstype = \"tmpfs\" }}]\n"
    )
}

/// The distinct directories with these names, each with a tmpfs on it.
fn mount_all(bench: &Bench) -> Result<Vec<PathBuf>> {
    let odd = bench.make_directory("odd")?;
    let names: BTreeSet<&[u8]> = NAMES.iter().copied().collect();
    names
        .into_iter()
        .map(|name| {
            let place = path_from_bytes(&odd, name);
            fs::create_dir(&place).with_context(|| format!("cannot create {}", place.display()))?;
            mount_tmpfs(&place, "size=64k")?;
            Ok(place)
        })
        .collect()
}

fn any_bytes(bench: &mut Bench) -> Result<()> {
    let places = mount_all(bench)?;
    let agent = Agent::start(bench, &discovery(bench))?;
    let scrape = agent.wait_scrape("all are healthy", |scrape| {
        let names = words::volumes(scrape);
        let all_well = names.iter().all(|name| words::healthy(scrape, name).unwrap_or(false));
        Ok(names.len() == places.len() && all_well)
    })?;
    ensure!(words::bad_lines(&scrape)? == 0.0);
    // Each name can be typed, and leads to its own volume.
    let devices: BTreeSet<String> =
        places.iter().map(|place| Ok(only_mount_at(place)?.device)).collect::<Result<_>>()?;
    let mut told = BTreeSet::new();
    for name in words::volumes(&scrape) {
        ensure!(!name.chars().any(char::is_control), "{name:?} would break a terminal or a log");
        told.insert(words::device(&scrape, &name)?);
        let described = agent.command(&["describe", &name])?;
        let text = String::from_utf8_lossy(&described.stdout).into_owned();
        ensure!(described.status.code() == Some(0) && text.contains("healthy"), "{name:?}: {text}");
    }
    ensure!(told == devices, "{told:?} and not {devices:?}");
    // One goes, and no other with it.
    let (gone, others) = places.split_first().context("no places")?;
    detach(gone)?;
    let healthy = |scrape: &Scrape| {
        let names = words::volumes(scrape);
        names.iter().filter(|name| words::healthy(scrape, name).unwrap_or(false)).count()
    };
    agent.wait_scrape("one is not healthy", |scrape| Ok(healthy(scrape) == others.len()))?;
    let log = agent.log()?;
    ensure!(!log.contains("\x1b[31m") && !log.contains("new\nline"), "raw bytes in the log");
    for page in ["/", "/api/v1/volumes", "/api/v1/events"] {
        ensure!(agent.get(page)?.status == 200, "{page}");
    }
    Ok(())
}

/// What `mount` was told as the source. None of it is UTF-8 or plain by chance.
const SOURCES: &[&[u8]] =
    &[b"", b"-", b" ", b" - ", b"a b\tc\nd\\e", b"#x", b"\xb1arc", b"//", b"\"quo\\te\"", b"a,b=c:/d e"];

fn sources(bench: &mut Bench) -> Result<()> {
    let odd = bench.make_directory("odd")?;
    for (number, source) in SOURCES.iter().enumerate() {
        let place = odd.join(format!("v{number}"));
        fs::create_dir(&place)?;
        mount_from(OsStr::from_bytes(source), &place, "tmpfs")?;
        ensure!(only_mount_at(&place)?.source.as_bytes() == *source, "the kernel shows another source");
    }
    // And one that is looked for by such a source, as the configuration spells it.
    let named = Volume::at("named", &odd.join("v4")).set("source", "a b\\x09c\\x0ad\\x5ce");
    let agent = Agent::start(bench, &format!("{}{}", discovery(bench), named.to_toml()))?;
    let scrape = agent.wait_scrape("all are healthy", |scrape| {
        let names = words::volumes(scrape);
        let all_well = names.iter().all(|name| words::healthy(scrape, name).unwrap_or(false));
        Ok(names.len() == SOURCES.len() && all_well)
    })?;
    ensure!(words::bad_lines(&scrape)? == 0.0);
    ensure!(words::healthy(&scrape, "named")?);
    let body = agent.get("/api/v1/volumes")?.body;
    let list: serde_json::Value = serde_json::from_str(&body).context("no JSON")?;
    let volumes = list.get("volumes").and_then(serde_json::Value::as_array).context("no list")?;
    for (volume, wanted) in [("v1", "-"), ("v6", "\\xb1arc"), ("v0", "")] {
        let one = volumes.iter().find(|one| {
            one.get("mountpoint")
                .and_then(serde_json::Value::as_str)
                .is_some_and(|path| path.ends_with(volume))
        });
        let shown = one.and_then(|one| one.get("source")).and_then(serde_json::Value::as_str);
        ensure!(shown == Some(wanted), "{volume}: {shown:?}");
    }
    Ok(())
}

/// The kernel writes most of these bytes as four, so one line is far longer than what one `read` returns.
fn long_lines(bench: &mut Bench) -> Result<()> {
    let odd = bench.make_directory("odd")?;
    let (mut place, mut root) = (odd.clone(), bench.make_directory("root")?);
    mount_tmpfs(&root, "size=1m")?;
    let part = "\n".repeat(250);
    while root.as_os_str().len() < 3700 {
        root = root.join(&part);
    }
    while place.as_os_str().len() < 3700 {
        place = place.join(&part);
    }
    fs::create_dir_all(&root)?;
    fs::create_dir_all(&place)?;
    bind(&root, &place)?;
    let source = "\\".repeat(4000);
    let long_source = odd.join("source");
    fs::create_dir(&long_source)?;
    mount_from(OsStr::new(&source), &long_source, "tmpfs")?;
    let after = odd.join("after");
    fs::create_dir(&after)?;
    mount_tmpfs(&after, "size=64k")?;
    let longest = longest_line()?;
    ensure!(longest > 28_000, "the longest line has {longest} bytes");

    let agent = Agent::start(bench, &discovery(bench))?;
    let scrape = agent.wait_scrape("all three are healthy", |scrape| {
        let names = words::volumes(scrape);
        Ok(names.len() == 3 && names.iter().all(|name| words::healthy(scrape, name).unwrap_or(false)))
    })?;
    ensure!(words::bad_lines(&scrape)? == 0.0);
    ensure!(scrape.value("mountie_mount_table_entries", &[])? == table()?.len() as f64);
    detach(&place)?;
    agent.wait_scrape("the long one is not healthy", |scrape| {
        let names = words::volumes(scrape);
        Ok(names.iter().filter(|name| words::healthy(scrape, name).unwrap_or(false)).count() == 2)
    })?;
    Ok(())
}

fn longest_line() -> Result<usize> {
    let bytes = fs::read("/proc/self/mountinfo").context("cannot read the mount table")?;
    Ok(bytes.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or(0))
}

/// Lines that no kernel writes today. What is behind them is read.
const BROKEN: &[&[u8]] = &[
    b"",
    b" ",
    b"-",
    b"not a line",
    b"1 2 0:3 / /cut",
    b"1 2 0:3 / /no-separator rw shared:1 tmpfs t rw",
    b"99999999999999999999 2 0:3 / /id rw - tmpfs t rw",
    b"1 2 03 / /device rw - tmpfs t rw",
    b"\xff\xfe\x00\x01",
];

/// The agent is given the real table with broken lines in it.
fn broken_lines(bench: &mut Bench) -> Result<()> {
    let place = bench.make_directory("volume")?;
    mount_tmpfs(&place, "size=64k")?;
    let mut bytes = BROKEN.join(b"\n".as_slice());
    bytes.push(b'\n');
    bytes.extend(fs::read("/proc/self/mountinfo").context("cannot read the mount table")?);
    // One that is longer than any reader should keep, and one good line behind it.
    bytes.extend_from_slice(b"1 2 0:3 / /");
    bytes.resize(bytes.len() + (5 << 20), b'x');
    bytes.extend_from_slice(
        b"\n4000000 2 0:3999 / /nowhere/behind rw - fuse.behind behind rw\ncut in the mid",
    );
    let file = bench.write("table", &bytes)?;
    let volume = Volume::at("v", &place).set("interval", "500ms").set("deadline", "2s");
    let discovery = "[discovery]\nenabled = true\ninclude = [{ fstype = \"fuse.behind\" }]\n";
    let mut setup = Setup::new(bench, &format!("{discovery}{}", volume.to_toml()))?;
    // The file lies over the agent's own view of the table; the process stays the same when it becomes the agent.
    let script = "mount --bind \"$0\" /proc/$$/mountinfo && exec \"$@\"";
    setup.wrapper = ["sh", "-c", script, &file.display().to_string()].map(str::to_owned).to_vec();
    let mut agent = Agent::start_with(bench, &setup)?;
    let scrape = agent.wait_state("v", "healthy")?;
    let bad = words::bad_lines(&scrape)?;
    // The file is read at least twice before it is believed.
    ensure!(bad >= (BROKEN.len() + 2) as f64, "{bad} bad lines");
    ensure!(!words::source_is_up(&scrape, "listmount")?, "the text is not what is read");
    ensure!(words::volumes(&scrape).iter().any(|name| name.ends_with("behind")), "{}", scrape.summary());
    agent.must_run()
}

/// The table shows such a root with a mark behind it.
fn removed_root(bench: &mut Bench) -> Result<()> {
    let share = bench.make_directory("share")?;
    mount_tmpfs(&share, "size=1m")?;
    let inside = share.join("in side");
    fs::create_dir(&inside)?;
    let place = bench.make_directory("volume")?;
    bind(&inside, &place)?;
    let volumes = [("v", place.as_path()), ("share", share.as_path())].map(|(name, place): (&str, &Path)| {
        Volume::at(name, place).set("interval", "300ms").set("deadline", "2s").to_toml()
    });
    let agent = Agent::start(bench, &volumes.concat())?;
    agent.wait_state("v", "healthy")?;
    fs::remove_dir(&inside)?;
    ensure!(fs::read_to_string("/proc/self/mountinfo")?.contains("//deleted"), "no mark");
    agent.wait_probes("v", 4.0)?;
    agent.wait_state("v", "healthy")?;
    words::was_never_sick(&agent, "v")?;
    words::was_never_sick(&agent, "share")?;
    detach(&place)?;
    agent.wait_degraded("v", "missing").map(drop)
}
