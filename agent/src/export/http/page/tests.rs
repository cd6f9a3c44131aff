//! The page, as text.

use agent_core::health::loss::Actor;
use agent_core::id::VolumeId;
use agent_core::pause::Pause;

use super::super::super::sample::{quiet_volume, sample_chronicle, sample_host, sample_snapshot};
use super::*;

/// What has broken pages.
const EVIL: &str = "<script>alert('x')</script>\"&\u{202e}\u{0}\n</title></style><!--";

fn told(snapshot: &Snapshot, wanted: impl Fn(&EventView) -> bool) -> Vec<EventView> {
    let events = sample_chronicle().latest(EVENTS, wanted);
    events.iter().map(|event| event.as_of(snapshot.clock())).collect()
}

fn overview_of(snapshot: &Snapshot, filter: &Filter) -> String {
    let doctor = DoctorReport::of_agent(&sample_host(), snapshot);
    let events = told(snapshot, |_| true);
    overview::page(&VolumeList::new(snapshot), filter, &events, &doctor).into_text()
}

fn page_of(snapshot: &Snapshot, id: &str) -> String {
    let view = VolumeView::new(find(snapshot, id).unwrap(), snapshot);
    let events = told(snapshot, |event| event.is_about(id));
    volume::page(&view, snapshot.timestamp(), &events, &sample_host()).into_text()
}

/// The sample with one volume, in which every text is hostile.
fn hostile() -> Snapshot {
    let mut snapshot = sample_snapshot();
    snapshot.volumes.retain(|volume| volume.id.as_str() == "models");
    let volume = &mut snapshot.volumes[0];
    volume.id = VolumeId::new(EVIL);
    volume.mountpoint = agent_core::path::BytePath::new([b"/\xff".as_slice(), EVIL.as_bytes()].concat());
    volume.fstype = EVIL.to_owned();
    volume.source = EVIL.to_owned();
    volume.condition.message = EVIL.to_owned();
    volume.culprits[0].2.comm = EVIL.to_owned();
    volume.hook = Some(EVIL.to_owned());
    if let Some((_, report)) = &mut volume.last_repair {
        report.steps.push(EVIL.to_owned());
    }
    snapshot
}

/// Elements whose names are not those of the page: nothing that came in became one.
fn assert_harmless(html: &str) {
    let without_own = html.replacen(&format!("<script>{SCRIPT}</script>"), "", 1);
    assert!(without_own.len() < html.len());
    for word in ["<script", "</title></style>", "<!--", "\u{202e}", "\u{0}", "'x'"] {
        assert!(!without_own.contains(word), "{word:?} in {without_own}");
    }
}

#[test]
fn nothing_from_outside_reaches_a_page_as_markup() {
    let snapshot = hostile();
    let html = overview_of(&snapshot, &Filter::new(EVIL, EVIL, 0));
    assert_harmless(&html);
    let html = overview_of(&snapshot, &Filter::default());
    assert_harmless(&html);
    assert!(html.matches("&lt;script&gt;alert(&#39;x&#39;)").count() >= 4, "{html}");
    assert!(html.contains("href=\"/?volume=%3Cscript%3E"), "{html}");
    let html = page_of(&snapshot, EVIL);
    assert_harmless(&html);
    assert!(html.matches("&lt;script&gt;").count() >= 8, "{html}");
    assert_harmless(&volume::not_there(EVIL, snapshot.timestamp(), &sample_host()).into_text());
    let event = EventView { message: EVIL.into(), volume: Some(EVIL.into()), ..first_event() };
    let doctor = DoctorReport::of_agent(&sample_host(), &snapshot);
    let list = VolumeList::new(&snapshot);
    let html = overview::page(&list, &Filter::default(), &[event], &doctor).into_text();
    assert_harmless(&html);
    let json = serde_json::to_string(&list).unwrap();
    assert!(!json.contains('\u{0}') && json.contains("\\u0000"), "{json}");
    assert_eq!(serde_json::from_str::<VolumeList>(&json).unwrap().volumes[0].id, EVIL);
}

fn first_event() -> EventView {
    EventView::clone(&sample_chronicle().latest(1, |_| true)[0])
}

#[test]
fn a_page_needs_nothing_from_elsewhere_and_its_rules_allow_exactly_its_own_script() {
    let html = overview_of(&sample_snapshot(), &Filter::default());
    for word in [" src=", "url(", "@import", " style=", " onclick", "javascript:"] {
        assert!(!html.contains(word), "{word}");
    }
    assert_eq!(html.matches("<link").count(), 1, "only the icon, which is in the page");
    let rules = RULES.as_ref().unwrap().to_str().unwrap();
    assert!(rules.starts_with("default-src 'none'; ") && !rules.contains("unsafe"), "{rules}");
    for (kind, tag) in [("script-src", "script"), ("style-src", "style")] {
        let inside =
            html.split(&format!("<{tag}>")).nth(1).unwrap().split(&format!("</{tag}>")).next().unwrap();
        let hash = STANDARD.encode(Sha256::digest(inside.as_bytes()));
        assert!(rules.contains(&format!("{kind} 'sha256-{hash}'")), "{rules}");
        assert_eq!(html.matches(&format!("<{tag}")).count(), 1);
    }
}

#[test]
fn the_first_page_says_which_are_sick_why_since_when_and_what_is_done() {
    let html = overview_of(&sample_snapshot(), &Filter::default());
    for words in [
        "<title>2 sick · node-7 · mountie</title>",
        "2 of 4 volumes sick",
        "Incident 3:",
        "degraded · hung",
        "recovering · stale",
        "Reads fail with ESTALE",
        "3m12s ago",
        "Being repaired by plan 7 (mount): mount filer1:/export/models (type nfs4) at /run/mountie/stage/7",
        "Nothing is done: mode observe only watches",
        "plan 7, by mount: the helper ended with code 32",
        "kernel programs: 1 attached, 1 failed",
        "load: EPERM; lost without it: some errors; left: probes only",
        "<noscript><meta http-equiv=\"refresh\"",
    ] {
        assert!(html.contains(words), "`{words}` is not in {html}");
    }
    // Told without colour as well: every state has a sign of its own.
    let signs: std::collections::BTreeSet<_> =
        filter::STATES.iter().map(|state| parts::look(state).1).collect();
    assert_eq!(signs.len(), filter::STATES.len());
    // The worst first.
    let place = |name: &str| html.find(&format!("<h3><a href=\"/?volume={name}\">")).unwrap();
    assert!(place("scratch") < place("models") && place("models") < place("backup"));
}

#[test]
fn that_no_volume_is_repaired_stands_at_the_top_with_who_said_so() {
    let mut snapshot = sample_snapshot();
    let by = Actor { uid: 1000, pid: 7, comm: "<b>".into() };
    let reason = Some("the filer <moves>".to_owned());
    let pause = Pause { since: snapshot.at, since_wall: None, until: None, by, reason };
    for volume in &mut snapshot.volumes {
        volume.pause = Some((pause.clone(), true));
    }
    let html = overview_of(&snapshot, &Filter::default());
    let told = "No volume is repaired:</strong> paused by uid 1000 (&lt;b&gt;): the filer &lt;moves&gt;. ";
    assert_eq!(html.matches(told).count(), 1, "{html}");
    assert!(html.contains("All repairs are paused by uid 1000"), "{html}");
    let html = overview_of(&sample_snapshot(), &Filter::default());
    assert!(!html.contains("No volume is repaired"), "{html}");
}

#[test]
fn a_filter_takes_what_has_all_its_words_and_its_state() {
    let snapshot = sample_snapshot();
    let list = VolumeList::new(&snapshot);
    let names = |words: &str, state: &str| -> Vec<&str> {
        Filter::new(words, state, 0).pick(&list.volumes).iter().map(|volume| volume.id.as_str()).collect()
    };
    assert_eq!(names("", "sick"), ["scratch", "models"]);
    assert_eq!(names(" NFS4 filer1 ", "degraded"), ["scratch"]);
    assert_eq!(names("DAVFS", ""), ["backup"]);
    assert_eq!(names("full", "healthy"), ["backup"]);
    assert_eq!(names("日本", ""), ["/mnt/caf\\xe9 \"日本\""]);
    assert!(names("models backup", "").is_empty());
    let html = overview_of(&snapshot, &Filter::new("nfs4 <", "sick", 0));
    assert!(
        html.contains("value=\"nfs4 &lt;\"") && html.contains("<option selected>sick</option>"),
        "{html}"
    );
    assert!(html.contains("0 of 4 volumes match"), "{html}");
    assert_eq!(Filter::new("a&b=c", "sick", 200).to_string(), "/?q=a%26b%3Dc&state=sick&from=200");
}

#[test]
fn many_volumes_are_on_several_pages() {
    let volumes = (0..450).map(|number| quiet_volume(&format!("v{number:03}"))).collect();
    let snapshot = Snapshot { volumes, incidents: Vec::new(), ..sample_snapshot() };
    let html = |from| overview_of(&snapshot, &Filter::new("v", "", from));
    let first = html(0);
    assert_eq!(first.matches("<h3>").count(), filter::ON_A_PAGE);
    assert!(first.contains("1 to 200 of 450 <a rel=\"next\" href=\"/?q=v&amp;from=200\">"), "{first}");
    let last = html(400);
    assert!(last.contains(">v449</a>") && last.contains("401 to 450 of 450"), "{last}");
    assert!(last.contains("rel=\"prev\" href=\"/?q=v&amp;from=200\"") && !last.contains("rel=\"next\""));
    assert_eq!(html(usize::MAX).matches("<h3>").count(), 0);
}

#[test]
fn the_page_of_a_volume_says_all_that_is_known() {
    let snapshot = sample_snapshot();
    let html = page_of(&snapshot, "models");
    for words in [
        "<h1>models</h1>",
        "probe-and-kernel-stale",
        "12 × ESTALE on read, counted by bpf; first <time datetime=\"2026-01-31T11:56:46Z\"",
        "postgres (process 4242): ESTALE on read",
        "the helper ended with code 32 (helper_failed)",
        "<li>undo unstage: nothing is there — 1 ms</li>",
        "href=\"/api/v1/volumes/models\"",
    ] {
        assert!(html.contains(words), "`{words}` is not in {html}");
    }
    assert!(!html.contains("Zx9"));
    let html = page_of(&snapshot, "scratch");
    for words in [
        "look that hangs</dt><dd>for 48s",
        "pread64",
        "/data in the namespace of python3",
        "/data/shard-7",
        "acknowledged",
    ] {
        assert!(html.contains(words), "`{words}` is not in {html}");
    }
}
