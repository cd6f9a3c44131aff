//! A password that the agent meets is nowhere to be read afterwards.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, Setup, Volume, toml_string};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{FSTYPE, Injector};
use integration_tests::harness::mnt_ns::mount_from;
use integration_tests::harness::needs::Need;
use integration_tests::harness::process;
use integration_tests::harness::words;

pub(crate) const CASES: &[Case] = &[Case {
    name: "passwords_in_sources_and_in_what_helpers_say_are_shown_nowhere",
    needs: &[Need::Root, Need::Fuse],
    timeout: Duration::from_secs(150),
    run: nowhere,
}];

/// What is looked for.
const SECRET: &str = "Zx9";

/// Everything that answers.
const PAGES: [&str; 7] = [
    "/metrics",
    "/",
    "/api/v1/volumes",
    "/api/v1/volumes/v",
    "/api/v1/events",
    "/api/v1/incidents",
    "/api/v1/doctor",
];

/// Sources as FUSE and WebDAV helpers write them into the table.
const SOURCES: &[&str] = &[
    "https://u:Zx9@dav.example/",
    "ann:Zx9@files:/x",
    "admin@cluster.fs=/,secret=Zx9",
    "http://h/?access_key=a&secret_access_key=Zx9",
];

/// Prints what it was given and what helpers say about it, to both outputs, and fails.
const HELPER: &str = r#"echo "trying: $*, username=u,password=Zx9,pass=Zx9,password2=Zx9,b,cred=/run/c"
echo "mount error: https://u:Zx9@dav.example/ -o PASSWORD=Zx9,Zx9" >&2
echo "retry with --client-secret=Zx9 and (token=Zx9)" >&2
exit 32
"#;

fn nowhere(bench: &mut Bench) -> Result<()> {
    let injector = Injector::start(bench, "volume", "here")?;
    let odd = bench.make_directory("odd")?;
    for (number, source) in SOURCES.iter().enumerate() {
        let place = odd.join(format!("v{number}"));
        fs::create_dir(&place)?;
        mount_from(source.as_ref(), &place, "tmpfs")?;
    }
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
    let body = format!("{discovery}{}max_attempts = 2\n", volume.to_toml());
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
    let mut said = Vec::new();
    for page in PAGES {
        said.push((page.to_owned(), agent.get(page)?.body));
    }
    let names = words::volumes(&agent.scrape()?);
    ensure!(names.len() == SOURCES.len() + 1, "{names:?}");
    for name in &names {
        let told = agent.command(&["describe", name])?;
        said.push((format!("describe {name}"), String::from_utf8_lossy(&told.stdout).into_owned()));
        for output in ["json", "yaml"] {
            let told = agent.command(&["describe", "-o", output, name])?;
            let place = format!("describe -o {output} {name}");
            said.push((place, String::from_utf8_lossy(&told.stdout).into_owned()));
        }
    }
    for output in ["table", "wide", "json", "yaml"] {
        let told = agent.command(&["status", "-o", output])?;
        said.push((format!("status -o {output}"), String::from_utf8_lossy(&told.stdout).into_owned()));
    }
    agent.terminate(SOON)?;
    said.push(("the log".to_owned(), agent.log()?));
    let state = files_below(&bench.path("state"))?;
    ensure!(state.iter().any(|(place, _)| place.contains("/volumes/")), "nothing is kept of volumes");
    said.extend(state);
    for (place, text) in &said {
        ensure!(!text.contains(SECRET), "in {place}:\n{text}");
        ensure!(!text.is_empty() || place.contains("journal"), "{place} says nothing");
    }
    // What is not secret is told: a person must see what the helper said.
    let described = said.iter().find(|(place, _)| place == "describe v").context("not described")?;
    ensure!(described.1.contains("username=u") && described.1.contains("trying"), "{}", described.1);
    Ok(())
}

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
