//! A password that the agent meets is nowhere to be read afterwards.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{
    Agent, SOON, Setup, Volume, run_binary, run_binary_with, toml_string,
};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::mnt_ns::{bind, mount_from};
use integration_tests::harness::needs::Need;
use integration_tests::harness::process;
use integration_tests::harness::words;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "passwords_in_sources_and_in_what_helpers_say_are_shown_nowhere",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: nowhere,
    },
    Case {
        name: "passwords_in_fstab_and_in_variables_are_shown_nowhere",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(150),
        run: from_elsewhere,
    },
];

/// What is looked for.
const SECRET: &str = "Zx9";

/// Everything that answers.
const PAGES: [&str; 9] = [
    "/metrics",
    "/",
    "/?volume=v",
    "/api/v1/volumes",
    "/api/v1/volumes/v",
    "/api/v1/events",
    "/api/v1/incidents",
    "/api/v1/doctor",
    "/api/v1/plan/v",
];

/// Sources as FUSE and WebDAV helpers write them into the table.
const SOURCES: &[&str] = &[
    "https://u:Zx9@dav.example/",
    "ann:Zx9@files:/x",
    "admin@cluster.fs=/,secret=Zx9",
    "http://h/?access_key=a&secret_access_key=Zx9",
];

/// Prints what it was given and what helpers say about it, to both outputs, and fails.
const HELPER: &str = r#"echo "trying $API_CODE: $*, username=u,password=Zx9,pass=Zx9,password2=Zx9,b,cred=/run/c"
echo "mount error: https://u:Zx9@dav.example/ -o PASSWORD=Zx9,Zx9" >&2
echo "retry with --client-secret=Zx9 and (token=Zx9)" >&2
echo "sent $API_CODE, as $0 was told"
echo "refused: $API_CODE" >&2
echo "$API_CODE" > "$SEEN"
exit 32
"#;

/// Settings that a person might write with a secret in them. None of them is taken, and none is repeated.
const REFUSED: &[&str] = &[
    "options = [\"username=u\", \"password=Zx9\"]",
    "options = [\"pass=Zx9\"]",
    "options = [\"name=admin\", \"secret=Zx9\"]",
    "source = \"https://u:Zx9@dav.example/\"",
    "source = \"//u:Zx9@server/share?password=Zx9\"",
    "[volume.repair]\nmethod = \"command\"\ncommand = [\"/x\", \"--token=Zx9\", \"{target}\"]",
    "[volume.repair]\nmethod = \"command\"\ncommand = [\"/x\", \"--password\", \"Zx9\", \"{target}\"]",
    "[volume.repair]\nhook = { exec = [\"/ask\", \"--token=Zx9\"] }",
    "[volume.repair]\nhook = { exec = [\"/ask\", \"--token\", \"Zx9\"] }",
    "[volume.repair]\nhook = { url = \"http://127.0.0.1:9/ask?token=Zx9\" }",
    "[volume.repair]\nhook = { url = \"http://u:Zx9@127.0.0.1:9/ask\" }",
    "[volume.repair]\nenvironment_file = \"/etc/password=Zx9\"",
    "[volume.repair]\nunit = \"password=Zx9\"",
];

/// Variables in which a person might write one: of settings that take other things, and of none.
const VARIABLES: &[(&str, &str)] = &[
    ("MOUNTIE_AGENT_LISTEN", "https://u:Zx9@127.0.0.1:9747"),
    ("MOUNTIE_AGENT_SOCKET", "password=Zx9"),
    ("MOUNTIE_AGENT_STATE_DIR", "--token=Zx9"),
    ("MOUNTIE_KERNEL_FAMILY", "secret=Zx9"),
    ("MOUNTIE_DEFAULTS_INTERVAL", "password=Zx9"),
    ("MOUNTIE_DEFAULTS_MODE", "pass=Zx9"),
    ("MOUNTIE_LOG", "info,password=Zx9"),
    ("MOUNTIE_VOLUME_PASSWORD", "Zx9"),
    ("MOUNTIE_PASSWORD", "Zx9"),
];

fn from_elsewhere(bench: &mut Bench) -> Result<()> {
    let good = bench.write("good.toml", b"[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/v\"\n")?;
    fs::set_permissions(&good, fs::Permissions::from_mode(0o600))?;
    let good = good.display().to_string();
    let mut said = Vec::new();
    for variable in VARIABLES {
        for question in [&["check-config", &good][..], &["doctor"], &["status"]] {
            let told = run_binary_with(&[*variable], question)?;
            let told = String::from_utf8_lossy(&[told.stdout, told.stderr].concat()).into_owned();
            said.push((format!("{} with {}", question.join(" "), variable.0), told));
        }
    }

    let injector = Injector::start(bench, "volume", "here")?;
    let place = injector.mountpoint().display();
    let entry = format!("https://u:Zx9@dav.example/ {place} davfs password=Zx9,noauto 0 0\n# secret=Zx9\n");
    let fstab = bench.write("fstab", entry.as_bytes())?;
    bind(&fstab, Path::new("/etc/fstab"))?;
    let volume = Volume::at("v", injector.mountpoint()).set("interval", "300ms").set("deadline", "2s");
    let body = format!("{}max_attempts = 2\n", volume.repaired(&[("method", "fstab")]).to_toml());
    let mut agent = Agent::start_with(bench, &Setup::new(bench, &body)?)?;
    agent.wait_state("v", "healthy")?;
    injector.kill()?;
    agent.wait_scrape("the entry is refused", |scrape| {
        Ok(words::repairs(scrape, "v", "not_prepared") >= 1.0)
    })?;
    said.extend(all_that_is_said(&agent, &["v".to_owned()])?);
    agent.terminate(SOON)?;
    said.push(("the log".to_owned(), agent.log()?));
    said.extend(files_below(&bench.path("state"))?);
    is_nowhere(&said)?;
    let described = said.iter().find(|(place, _)| place == "describe v").context("not described")?;
    ensure!(described.1.contains("carries a secret"), "{}", described.1);
    Ok(())
}

fn refused(bench: &Bench) -> Result<()> {
    for lines in REFUSED {
        let text = format!("[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/v\"\n{lines}\n");
        let file = bench.write("refused.toml", text.as_bytes())?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let checked = run_binary(&["check-config", &file.display().to_string()])?;
        let told = [checked.stdout, checked.stderr].concat();
        let told = String::from_utf8_lossy(&told).into_owned();
        ensure!(checked.status.code() == Some(64), "{lines}: {told}");
        ensure!(!told.contains(SECRET), "{lines}: {told}");
        ensure!(!lines.contains("options") || told.contains("use credentials=FILE"), "{told}");
    }
    Ok(())
}

/// A mount whose options in the table hold a secret.
fn mount_with_options(bench: &Bench, odd: &Path) -> Result<()> {
    let layer = bench.make_directory("password=Zx9")?;
    let (lower, place) = (layer.join("lower"), odd.join("overlay"));
    for directory in [&lower, &place] {
        fs::create_dir(directory)?;
    }
    let empty = bench.make_directory("empty")?;
    let layers = format!("lowerdir={}:{}", lower.display(), empty.display());
    let arguments = ["-t", "overlay", "overlay", "-o", &layers].map(OsStr::new);
    process::run("mount", &[&arguments[..], &[place.as_os_str()]].concat()).map(drop)
}

fn nowhere(bench: &mut Bench) -> Result<()> {
    refused(bench)?;
    let injector = Injector::start(bench, "volume", "here")?;
    let odd = bench.make_directory("odd")?;
    for (number, source) in SOURCES.iter().enumerate() {
        let place = odd.join(format!("v{number}"));
        fs::create_dir(&place)?;
        mount_from(source.as_ref(), &place, "tmpfs")?;
    }
    mount_with_options(bench, &odd)?;
    let seen = bench.path("seen");
    let variables = format!("# for the helper\nAPI_CODE={SECRET}\nSEEN={}\n", seen.display());
    let variables = bench.write("variables", variables.as_bytes())?;
    fs::set_permissions(&variables, fs::Permissions::from_mode(0o600))?;
    let helper = bench.write("helper.sh", HELPER.as_bytes())?;
    let command = ["/bin/sh".to_owned(), helper.display().to_string(), "{target}".to_owned()];
    let volume = Volume::at("v", injector.mountpoint())
        .set("source", "injector")
        .set("fstype", FSTYPE)
        .set("interval", "300ms")
        .set("deadline", "2s")
        .repaired_by(&command);
    let pattern = toml_string(&format!("{}/**", odd.display()));
    let discovery = format!("[discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern} }}]\n");
    let file = toml_string(&variables.display().to_string());
    let body = format!("{discovery}{}environment_file = {file}\nmax_attempts = 2\n", volume.to_toml());
    let mut agent = Agent::start_with(bench, &Setup::new(bench, &body)?)?;
    agent.wait_state("v", "healthy")?;
    injector.kill()?;
    // While the helpers run, the arguments of all processes are public.
    let mut public = Vec::new();
    agent.wait_scrape("all attempts have failed", |scrape| {
        for one in process::all() {
            let words = process::arguments(one);
            let text =
                words.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect::<String>();
            public.extend(text.contains(SECRET).then(|| format!("process {one}: {text}")));
        }
        Ok(words::repairs(scrape, "v", "helper_failed") >= 2.0)
    })?;
    ensure!(public.is_empty(), "in the arguments of {public:?}");
    ensure!(fs::read_to_string(&seen)?.trim() == SECRET, "the helper was not given its variables");
    let names = words::volumes(&agent.scrape()?);
    ensure!(names.len() == SOURCES.len() + 2, "{names:?}");
    let mut said = by_hand(&agent, bench)?;
    said.extend(all_that_is_said(&agent, &names)?);
    agent.terminate(SOON)?;
    said.push(("the log".to_owned(), agent.log()?));
    let state = files_below(&bench.path("state"))?;
    for part in ["journal", "/volumes/"] {
        ensure!(state.iter().any(|(place, _)| place.contains(part)), "no {part} among {state:?}");
    }
    said.extend(state);
    is_nowhere(&said)?;
    // What is not secret is told: a person must see what the helper said.
    let described = said.iter().find(|(place, _)| place == "describe v").context("not described")?;
    ensure!(described.1.contains("username=u") && described.1.contains("trying"), "{}", described.1);
    Ok(())
}

fn is_nowhere(said: &[(String, String)]) -> Result<()> {
    for (place, text) in said {
        ensure!(!text.contains(SECRET), "in {place}:\n{text}");
        ensure!(!text.is_empty() || place.contains("journal"), "{place} says nothing");
    }
    Ok(())
}

/// What people write by hand is kept and shown, too.
fn by_hand(agent: &Agent, bench: &Bench) -> Result<Vec<(String, String)>> {
    let paused = agent.command(&["pause", "v", "--reason", "password=Zx9 was wrong"])?;
    ensure!(paused.status.success(), "{}", String::from_utf8_lossy(&paused.stderr));
    let state_dir = bench.path("state").display().to_string();
    let mut said = Vec::new();
    for question in ["show", "export"] {
        let told = run_binary(&["state", question, "--state-dir", &state_dir])?;
        ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
        said.push((format!("state {question}"), String::from_utf8_lossy(&told.stdout).into_owned()));
    }
    Ok(said)
}

/// What the agent answers to everything that can be asked, with the name of the question.
fn all_that_is_said(agent: &Agent, names: &[String]) -> Result<Vec<(String, String)>> {
    let mut said = Vec::new();
    for page in PAGES {
        said.push((page.to_owned(), agent.get(page)?.body));
    }
    let mut questions = vec![vec!["remount", "--dry-run", "v"]];
    for name in names {
        questions.push(vec!["describe", name]);
        questions.extend(["json", "yaml"].map(|output| vec!["describe", "-o", output, name]));
    }
    questions.extend(["table", "wide", "json", "yaml"].map(|output| vec!["status", "-o", output]));
    questions.extend([vec!["doctor"], vec!["events"], vec!["events", "-o", "json"]]);
    for question in questions {
        let told = agent.command(&question)?;
        said.push((question.join(" "), String::from_utf8_lossy(&told.stdout).into_owned()));
    }
    Ok(said)
}

/// The files below a directory with what is in them.
fn files_below(directory: &Path) -> Result<Vec<(String, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).context("there is no state")? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else if path.is_file() {
            let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
            files.push((path.display().to_string(), text));
        }
    }
    Ok(files)
}
