//! The status page, with volumes whose names were made to break it.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use integration_tests::harness::agent::{Agent, SOON, toml_string};
use integration_tests::harness::bench::{Bench, mount_tmpfs};
use integration_tests::harness::case::Case;
use integration_tests::harness::http;
use integration_tests::harness::json::part;
use integration_tests::harness::mnt_ns::path_from_bytes;
use integration_tests::harness::needs::Need;
use integration_tests::harness::wait::patiently;
use serde_json::Value;

pub(crate) const CASES: &[Case] = &[Case {
    name: "volumes_with_hostile_names_are_shown_filtered_and_linked_to_as_they_are",
    needs: &[Need::Root],
    timeout: Duration::from_secs(120),
    run: hostile,
}];

/// Names of directories that are more than names to a page, a query, a path or a document in JSON.
const NAMES: &[&[u8]] = &[
    b"<script>alert(1)<",
    b"\"><img src=x onerror=alert(1)>",
    b"'`;--&amp;&lt;",
    b"..;a=b&state=sick#x?volume=y",
    b"%2e%2e%00",
    b"\xff\xfe\x80latin\xe9",
    b"\xe2\x80\xaetxt.exe",
    b"\x1b[31mred\x07\r\n",
    "漢字 ☃".as_bytes(),
];

fn hostile(bench: &mut Bench) -> Result<()> {
    let odd = bench.make_directory("odd")?;
    for name in NAMES {
        let place = path_from_bytes(&odd, name);
        fs::create_dir(&place).with_context(|| format!("cannot create {}", place.display()))?;
        mount_tmpfs(&place, "size=64k")?;
    }
    let pattern = toml_string(&format!("{}/odd/**", bench.directory().display()));
    let body = format!(
        "[defaults]\ninterval = \"500ms\"\ndeadline = \"5s\"\n\
         [discovery]\nenabled = true\ninclude = [{{ mountpoint = {pattern}, fstype = \"tmpfs\" }}]\n"
    );
    let mut agent = Agent::start(bench, &body)?;
    let list: Value = serde_json::from_str(&agent.get("/api/v1/volumes")?.body).context("no JSON")?;
    let volumes = part(&list, "/volumes").as_array().context("no volumes")?;
    ensure!(volumes.len() == NAMES.len(), "{} volumes", volumes.len());

    let first = page(&agent, "/")?;
    harmless(&first)?;
    ensure!(first.matches("<h3>").count() == NAMES.len(), "not every volume is shown");
    for volume in volumes {
        let id = part(volume, "/id").as_str().context("no id")?;
        let address = format!("/?volume={}", encoded(id));
        ensure!(first.contains(&format!("href=\"{address}\"")), "no link to {id}");
        let one = page(&agent, &address)?;
        harmless(&one)?;
        ensure!(one.contains(">as JSON</a>") && !one.contains("There is no volume"), "{address}: {one}");
        let json: Value =
            serde_json::from_str(&agent.get(&format!("/api/v1/volumes/{}", encoded(id)))?.body)?;
        ensure!(part(&json, "/id") == id, "{json}");
        let found = page(&agent, &format!("/?q={}", encoded(id)))?;
        harmless(&found)?;
        ensure!(found.matches("<h3>").count() == 1, "{id} is not found by its own name");
    }
    ensure!(page(&agent, "/?state=sick")?.matches("<h3>").count() == 0);
    ensure!(agent.get("/?volume=%3Cscript%3E")?.status == 404);
    agent.must_run()
}

/// A page, with what the browser is told about it.
fn page(agent: &Agent, address: &str) -> Result<String> {
    let mut stream = TcpStream::connect(agent.address())?;
    stream.set_read_timeout(Some(patiently(SOON)))?;
    let answer = http::exchange(&mut stream, &format!("GET {address} HTTP/1.0\r\n\r\n"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no body")?;
    ensure!(head.contains(" 200 "), "{address}: {head}");
    ensure!(head.contains("content-security-policy: default-src 'none'; script-src 'sha256-"), "{head}");
    ensure!(!head.contains("unsafe"), "{head}");
    Ok(body.to_owned())
}

fn harmless(page: &str) -> Result<()> {
    ensure!(page.matches("<script").count() == 1 && !page.contains("<img"), "{page}");
    let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
    ensure!(!page.chars().any(raw), "raw characters in {page}");
    Ok(())
}

/// As a browser writes it.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(one).collect()
}
