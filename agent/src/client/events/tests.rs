//! What is printed, and what happens when an agent goes and another comes.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::timeout;

use super::super::Look;
use super::super::tests::{FixedAgent, PATIENCE, Paper, printed as until};
use super::*;
use crate::export::chronicle::Chronicle;
use crate::export::sample::{detection, sample_chronicle, sample_snapshot, seconds};
use crate::export::view::EventView;

fn request(output: Output) -> EventsRequest {
    EventsRequest { output, ..EventsRequest::default() }
}

async fn printed(agent: &FixedAgent, request: &EventsRequest) -> (ExitCode, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let console = &mut Console { out: &mut out, err: &mut err, look: Look::default() };
    let code = events(&agent.socket(), request, pending(), console).await;
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn falls(chronicle: &Chronicle, volume: &str) -> String {
    chronicle.transition(&detection(volume, seconds(900), None));
    chronicle.show();
    chronicle.last().to_string()
}

#[tokio::test]
async fn events_are_shown_one_a_line_with_the_newest_last() {
    let agent = FixedAgent::start(sample_snapshot()).await;
    let (code, out, err) = printed(&agent, &request(Output::Table)).await;
    assert_eq!((code, err.as_str()), (ExitCode::Ok, ""));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.len(), 3, "{out}");
    assert!(lines[0].contains("  models  suspect → degraded (stale): "), "{out}");
    assert!(lines[1].contains("  2 volumes  incident began 3: "), "{out}");
    assert!(lines[2].contains("  models  repair ended (stale): plan 7"), "{out}");

    let one = EventsRequest { limit: Some(1), volume: Some("models".to_owned()), ..request(Output::Json) };
    let (_, out, _) = printed(&agent, &one).await;
    let list: EventList = serde_json::from_str(&out).unwrap();
    assert_eq!((list.events.len(), list.events[0].kind.as_str()), (1, "repair_ended"));

    // None that were asked for is not none at all.
    let newest = EventsRequest { after: Some(list.last.to_string()), ..request(Output::Table) };
    assert_eq!(printed(&agent, &newest).await.1, "nothing has happened since that event\n");
    let none = EventsRequest { limit: Some(0), ..request(Output::Table) };
    assert_eq!(printed(&agent, &none).await.1, "no events were asked for\n");
    let calm = EventsRequest { volume: Some("backup".to_owned()), ..request(Output::Table) };
    assert_eq!(printed(&agent, &calm).await.1, "nothing that is remembered has happened to that volume\n");

    let nobody = EventsRequest { volume: Some("nobody".to_owned()), ..request(Output::Table) };
    assert_eq!(printed(&agent, &nobody).await.0, ExitCode::Usage);
    let nonsense = EventsRequest { after: Some("x y".to_owned()), ..request(Output::Table) };
    let (code, _, err) = printed(&agent, &nonsense).await;
    assert_eq!(code, ExitCode::Usage);
    assert!(err.contains("x y"), "{err}");
}

#[tokio::test]
async fn who_follows_hears_of_a_restart_and_misses_and_doubles_nothing() {
    let first = sample_chronicle();
    let agent = FixedAgent::start_with(sample_snapshot(), Arc::clone(&first), None).await;
    let (out, err) = (watch::Sender::new(String::new()), watch::Sender::new(String::new()));
    let (mut shown, mut told) = (out.subscribe(), err.subscribe());
    let socket = agent.socket();
    let (stop, mut stopped) = watch::channel(false);
    let following = async {
        let (mut out, mut err) = (Paper(out), Paper(err));
        let console = &mut Console { out: &mut out, err: &mut err, look: Look::default() };
        let request = EventsRequest { follow: true, ..request(Output::Json) };
        let stopped = async {
            let _ = stopped.changed().await;
        };
        events(&socket, &request, stopped, console).await
    };
    let happening = async {
        let mut wanted: Vec<String> =
            first.after(0, 9).events.iter().map(|event| event.id.to_string()).collect();
        until(&mut shown, wanted.last().unwrap()).await;
        wanted.push(falls(&first, "models"));
        until(&mut shown, wanted.last().unwrap()).await;

        let place = agent.stop().await;
        until(&mut told, "waiting for it").await;
        // Another run, whose first events nobody has seen.
        let second = Arc::new(Chronicle::new());
        wanted.push(falls(&second, "scratch"));
        let agent = FixedAgent::start_with(sample_snapshot(), Arc::clone(&second), Some(place)).await;
        until(&mut told, "the agent answers again").await;
        until(&mut shown, wanted.last().unwrap()).await;
        wanted.push(falls(&second, "scratch"));
        until(&mut shown, wanted.last().unwrap()).await;
        stop.send_replace(true);
        drop(agent);
        wanted
    };
    let (code, wanted) = timeout(PATIENCE * 2, async { tokio::join!(following, happening) }).await.unwrap();
    assert_eq!(code, ExitCode::Ok);
    let text = shown.borrow().clone();
    let (lost, ids): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.contains("\"kind\":\"lost\""));
    assert_eq!(lost.len(), 1, "{text}");
    let ids = ids.iter().map(|line| serde_json::from_str::<EventView>(line).unwrap().id.to_string());
    assert_eq!(ids.collect::<Vec<_>>(), wanted);
}

#[test]
fn nothing_in_an_event_steers_the_terminal_but_the_colour_of_its_state() {
    let mut event = EventView::clone(&sample_chronicle().after(0, 1).events[0]);
    event.volume = Some("a\x1b[2Jb".to_owned());
    event.message = "x\ny\u{202e}z".to_owned();
    let coloured = line(&event, Look { terminal: true, colour: true, ascii: false });
    assert_eq!(coloured.lines().count(), 1);
    let bare = coloured.replace("\x1b[33msuspect\x1b[0m", "").replace("\x1b[31mdegraded\x1b[0m", "");
    assert!(bare.len() < coloured.len() && !bare.contains(['\x1b', '\u{202e}']), "{coloured:?}");
    assert!(!line(&event, Look::default()).contains('\x1b'));
}

#[test]
fn what_is_missing_from_a_list_is_said_above_it() {
    let event = EventView::clone(&sample_chronicle().after(0, 1).events[0]);
    let list =
        EventList { at: event.at, last: event.id, missed: Some(7), restarted: false, events: Vec::new() };
    assert!(text(&list, "nothing", Look::default()).contains("  7 events are no longer remembered\n"));
    let list = EventList { missed: None, restarted: true, events: vec![event], ..list };
    let shown = text(&list, "nothing", Look::default());
    assert!(shown.lines().next().unwrap().contains("started anew"), "{shown}");
    assert_eq!(shown.lines().count(), 2);
    let list = EventList { restarted: false, events: Vec::new(), ..list };
    assert_eq!(text(&list, "nothing", Look::default()), "nothing\n");
}
