//! Volumes that fail together are told as one incident, with what they have in common.

use std::fs;
use std::time::Duration;

use anyhow::{Result, ensure};
use integration_tests::harness::agent::{Agent, Volume, is_in_state, toml_string};
use integration_tests::harness::bench::Bench;
use integration_tests::harness::case::Case;
use integration_tests::harness::fuse_fs::{Injector, Mode};
use integration_tests::harness::json::part;
use integration_tests::harness::mnt_ns::bind;
use integration_tests::harness::needs::Need;
use integration_tests::harness::scrape::Scrape;
use nix::errno::Errno;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "two_volumes_of_one_daemon_are_one_incident_and_a_third_of_another_is_not_in_it",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(240),
        run: one_daemon,
    },
    Case {
        name: "three_volumes_that_were_found_and_not_named_are_one_incident_of_their_daemon",
        needs: &[Need::Root, Need::Fuse],
        timeout: Duration::from_secs(240),
        run: found,
    },
];

fn one_daemon(bench: &mut Bench) -> Result<()> {
    let shared = Injector::start(bench, "shared", "here")?;
    let other = Injector::start(bench, "other", "here")?;
    let second = bench.make_directory("second")?;
    bind(shared.mountpoint(), &second)?;
    let places = [("a", shared.mountpoint()), ("b", second.as_path()), ("c", other.mountpoint())];
    let volume = |(name, place): (&str, &std::path::Path)| {
        Volume::at(name, place).set("interval", "200ms").set("deadline", "2s").to_toml()
    };
    let volumes: String = places.into_iter().map(volume).collect();
    let agent = Agent::start(bench, &format!("[kernel]\nfamily = \"off\"\n{volumes}"))?;
    for (name, _) in places {
        agent.wait_state(name, "healthy")?;
    }
    let open = |scrape: &Scrape| scrape.value("mountie_incidents", &[("kind", "daemon")]);
    ensure!(open(&agent.scrape()?)? == 0.0, "an incident without a fault");
    shared.set(&Mode::fail_all(Errno::ESTALE))?;
    other.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_scrape("all three are sick and two are an incident", |scrape| {
        let mut sick = true;
        for name in ["a", "b", "c"] {
            sick &= is_in_state(scrape, name, "degraded")?;
        }
        Ok(sick && open(scrape)? == 1.0)
    })?;
    let list: Value = serde_json::from_str(&agent.get("/api/v1/incidents")?.body)?;
    let incident = part(&list, "/incidents/0");
    let names: Vec<_> =
        part(incident, "/volumes").as_array().into_iter().flatten().map(|m| part(m, "/volume")).collect();
    ensure!(part(incident, "/kind") == "daemon" && names.len() == 2, "{list}");
    ensure!(names.contains(&&Value::from("a")) && names.contains(&&Value::from("b")), "{list}");

    let status = String::from_utf8(agent.command(&["status"])?.stdout)?;
    ensure!(status.contains("2 volumes of daemon") && status.contains("fail together"), "{status}");
    let described = String::from_utf8(agent.command(&["describe", "b"])?.stdout)?;
    ensure!(described.contains("incident") && described.contains("with a"), "{described}");
    let described = String::from_utf8(agent.command(&["describe", "c"])?.stdout)?;
    ensure!(!described.contains("fail together"), "{described}");

    shared.set(&Mode::Ok)?;
    agent.wait_scrape("it is over", |scrape| Ok(open(scrape)? == 0.0))?;
    let log = agent.log()?;
    let told = |words: &str| log.matches(words).count();
    ensure!(told("Volumes fail together") == 1, "{log}");
    ensure!(told("Volumes do not fail together any more") == 1, "{log}");
    let events: Value = serde_json::from_str(&agent.get("/api/v1/events")?.body)?;
    let kinds: Vec<_> =
        part(&events, "/events").as_array().into_iter().flatten().map(|event| part(event, "/kind")).collect();
    for kind in ["incident_began", "incident_ended"] {
        ensure!(kinds.iter().filter(|found| ***found == kind).count() == 1, "{events}");
    }
    Ok(())
}

fn found(bench: &mut Bench) -> Result<()> {
    let shared = Injector::start(bench, "shared", "here")?;
    for name in ["second", "third"] {
        let inside = shared.mountpoint().join(name);
        fs::create_dir(&inside)?;
        bind(&inside, &bench.make_directory(name)?)?;
    }
    let pattern = toml_string(&format!("{}/**", bench.directory().display()));
    let body = format!(
        "[kernel]\nfamily = \"off\"\n[defaults]\ninterval = \"200ms\"\ndeadline = \"2s\"\n\
         [discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern}, fstype = \"fuse*\" }}]\n"
    );
    let agent = Agent::start(bench, &body)?;
    let count = |scrape: &Scrape, state: &str| {
        scrape
            .matching("mountie_volume_state", &[("state", state)])
            .filter(|(_, value)| *value == 1.0)
            .count()
    };
    agent.wait_scrape("all three are found", |scrape| Ok(count(scrape, "healthy") == 3))?;
    shared.set(&Mode::fail_all(Errno::EIO))?;
    agent.wait_scrape("all three are sick and one incident", |scrape| {
        let open = scrape.value("mountie_incidents", &[("kind", "daemon")])?;
        Ok(count(scrape, "degraded") == 3 && open == 1.0)
    })?;
    let list: Value = serde_json::from_str(&agent.get("/api/v1/incidents")?.body)?;
    let members = part(&list, "/incidents/0/volumes").as_array().map_or(0, Vec::len);
    ensure!(members == 3 && part(&list, "/incidents/1").is_null(), "{list}");
    Ok(())
}
