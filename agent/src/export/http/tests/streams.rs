//! Those who follow events.

use std::sync::Arc;
use std::time::Duration;

use agent_core::order::{Deed, NodeDeed};
use hyper::StatusCode;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::super::listen::Limits;
use super::{PATIENCE, Server, WIDE, fresh_snapshot};
use crate::export::Snapshot;
use crate::export::chronicle::KEPT;
use crate::export::event_id::EventId;
use crate::export::sample::{detection, quiet_volume, seconds};

/// Somebody who follows, and what was sent so far and not taken yet.
struct Follower {
    stream: UnixStream,
    text: String,
}

impl Follower {
    async fn start(server: &Server, query: &str, fields: &str) -> Self {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        let head = format!("GET /api/v1/events?follow=true{query} HTTP/1.1\r\nhost: x\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        Self { stream, text: String::new() }
    }

    /// Reads on until this stands in what was sent, and takes everything up to its end.
    async fn until(&mut self, wanted: &str) -> String {
        loop {
            if let Some(at) = self.text.find(wanted) {
                let rest = self.text.split_off(at + wanted.len());
                return std::mem::replace(&mut self.text, rest);
            }
            let mut bytes = [0; 4096];
            let read = timeout(PATIENCE, self.stream.read(&mut bytes)).await.unwrap().unwrap();
            assert!(read > 0, "the stream ended before `{wanted}`: {}", self.text);
            self.text.push_str(std::str::from_utf8(&bytes[..read]).unwrap());
        }
    }

    /// Everything up to the end, which must come.
    async fn rest(mut self) -> String {
        timeout(PATIENCE, self.stream.read_to_string(&mut self.text)).await.unwrap().unwrap();
        self.text
    }
}

fn falls(server: &Server, volume: &str, count: usize) {
    for _ in 0..count {
        server.chronicle.transition(&detection(volume, seconds(900), None));
    }
    server.chronicle.show();
}

#[tokio::test]
async fn what_happens_is_sent_at_once_and_to_those_who_come_back_from_where_they_were() {
    let server = Server::start(fresh_snapshot()).await;
    let before = server.chronicle.last();
    let mut follower = Follower::start(&server, "", "").await;
    let head = follower.until("\r\n\r\n").await;
    assert!(head.contains("\r\ncontent-type: text/event-stream\r\n"), "{head}");
    assert!(head.contains("\r\ncache-control: no-store\r\n"), "{head}");
    follower.until(&format!("retry: 2000\nid: {before}\n\n")).await;
    falls(&server, "models", 1);
    let last = server.chronicle.last();
    let sent = follower.until("\n\n").await;
    assert!(
        sent.contains(&format!("id: {last}\ndata: {{\"id\":\"{last}\",\"kind\":\"transition\"")),
        "{sent}"
    );

    falls(&server, "models", 1);
    // The address names an older one than the header: the header is what was seen last.
    let fields = format!("last-event-id: {last}\r\naccept: application/x-ndjson\r\n");
    let mut again = Follower::start(&server, &format!("&after={before}"), &fields).await;
    assert!(again.until("\r\n\r\n").await.contains("content-type: application/x-ndjson"));
    let sent = again.until("}\n").await;
    let line = sent.lines().find(|line| line.starts_with('{')).unwrap();
    let event: Value = serde_json::from_str(line).unwrap();
    assert_eq!(event["id"], server.chronicle.last().to_string());
}

#[tokio::test]
async fn only_what_is_about_the_volume_is_sent() {
    let server = Server::start(fresh_snapshot()).await;
    let first = EventId::new(server.chronicle.last().run(), 0);
    let mut follower = Follower::start(&server, &format!("&after={first}&volume=mnt/scratch"), "").await;
    falls(&server, "models", 3);
    falls(&server, "scratch", 1);
    let sent = follower.until("\"volume\":\"scratch\"").await;
    assert!(
        sent.contains("\"kind\":\"incident_began\"") && !sent.contains("\"volume\":\"models\""),
        "{sent}"
    );
    for (query, status) in
        [("volume=nobody", 404), ("after=nonsense", 400), ("folow=true", 400), ("limit=-1", 400)]
    {
        for follow in ["&follow=true", ""] {
            let path = format!("/api/v1/events?{query}{follow}");
            assert_eq!(server.get(&path).await.status.as_u16(), status, "{path}");
        }
    }
    let future = EventId::new(first.run(), 999);
    let (status, json) = server.json(&format!("/api/v1/events?after={future}")).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(json["error"].as_str().unwrap().contains("there is no event"), "{json}");
}

#[tokio::test]
async fn who_reads_too_slowly_is_told_what_is_missing_and_the_stream_ends() {
    let server = Server::start(fresh_snapshot()).await;
    let mut follower = Follower::start(&server, "", "").await;
    follower.until("id: ").await;
    // The socket takes some of it, and then nobody reads until what was not sent is forgotten.
    for _ in 0..3 {
        falls(&server, "models", KEPT / 2);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    falls(&server, "models", KEPT * 2);
    let last = server.chronicle.last();
    let sent = follower.rest().await;
    let lost = sent.lines().rfind(|line| line.starts_with("data: ")).unwrap();
    let lost: Value = serde_json::from_str(lost.trim_start_matches("data: ")).unwrap();
    assert_eq!(lost["kind"], "lost");
    assert!(sent.ends_with("0\r\n\r\n"), "the answer has no end");
    let numbers: Vec<u64> = sent
        .lines()
        .filter_map(|line| line.strip_prefix("id: ")?.parse::<EventId>().ok())
        .map(EventId::number)
        .collect();
    let (tail, body) = numbers.split_last().unwrap();
    assert!(body.windows(2).all(|pair| pair[0] + 1 == pair[1]), "a gap that nobody was told of");
    assert_eq!(body.last().unwrap() + lost["missed"].as_u64().unwrap(), *tail);

    // Who comes back from there hears of nothing missing but what is gone since.
    let mut again =
        Follower::start(&server, "", &format!("last-event-id: {}\r\n", lost["id"].as_str().unwrap())).await;
    again.until(&format!("id: {last}\ndata: ")).await;
}

#[tokio::test]
async fn who_comes_from_another_run_of_the_agent_is_told_so() {
    let server = Server::start(fresh_snapshot()).await;
    let mut follower = Follower::start(&server, "&after=1-17", "").await;
    let sent = follower.until("\"kind\":\"lost\"").await;
    assert!(!sent.contains("missed"), "{sent}");
    assert!(follower.until("\"kind\":\"incident_began\"").await.contains("started anew"));
    let (_, json) = server.json("/api/v1/events?after=1-17").await;
    assert_eq!((&json["restarted"], json["events"].as_array().unwrap().len()), (&Value::Bool(true), 3));
    let last = server.chronicle.last();
    let (_, json) = server.json(&format!("/api/v1/events?after={last}")).await;
    assert_eq!((json.get("restarted"), json["events"].as_array().unwrap().len()), (None, 0));
    let (_, json) = server.json("/api/v1/events?limit=1").await;
    assert_eq!(json["events"][0]["id"], last.to_string());
}

#[tokio::test]
async fn who_goes_on_from_an_event_with_a_limit_is_given_the_oldest_and_misses_nothing() {
    let server = Server::start(fresh_snapshot()).await;
    falls(&server, "models", 7);
    let (_, json) = server.json("/api/v1/events?limit=2").await;
    assert_eq!(json["last"], server.chronicle.last().to_string());
    let mut after = EventId::new(server.chronicle.last().run(), 0);
    let mut seen = Vec::new();
    loop {
        let (_, json) = server.json(&format!("/api/v1/events?after={after}&limit=3")).await;
        let events = json["events"].as_array().unwrap();
        seen.extend(events.iter().rev().map(|event| event["id"].as_str().unwrap().to_owned()));
        if events.is_empty() {
            break;
        }
        after = json["last"].as_str().unwrap().parse().unwrap();
    }
    let all =
        (1..=server.chronicle.last().number()).map(|number| EventId::new(after.run(), number).to_string());
    assert_eq!(seen, all.collect::<Vec<_>>());
}

#[tokio::test]
async fn what_others_hear_of_is_no_pulse_for_one_who_hears_of_nothing() {
    let limits = Limits { pulse: Duration::from_millis(300), ..WIDE };
    let server = Server::start_with(fresh_snapshot(), limits).await;
    let mut follower = Follower::start(&server, "&volume=scratch", "").await;
    follower.until("id: ").await;
    let pulsed = follower.until(": nothing new\n");
    let others = async {
        loop {
            falls(&server, "models", 1);
            tokio::time::sleep(limits.pulse / 6).await;
        }
    };
    let sent = tokio::select! {
        sent = pulsed => sent,
        () = others => unreachable!(),
    };
    assert!(!sent.contains("\"volume\":\"models\""), "{sent}");
    // A browser that comes back goes on from the last that others heard of.
    let id: EventId = follower.until("\n\n").await.trim().trim_start_matches("id: ").parse().unwrap();
    assert!(id.number() > 3, "{id}");
}

#[tokio::test]
async fn what_is_done_to_the_node_is_about_every_volume() {
    let server = Server::start(fresh_snapshot()).await;
    let mut follower = Follower::start(&server, "&volume=scratch", "").await;
    follower.until("id: ").await;
    server.chronicle.deed(&NodeDeed {
        at: seconds(900),
        deed: Deed::Pause,
        volume: None,
        by: None,
        message: "paused the repairs of every volume".to_owned(),
    });
    server.chronicle.show();
    follower.until("\"kind\":\"pause\"").await;
}

#[tokio::test]
async fn who_takes_nothing_is_cut_off_without_the_end_of_an_answer() {
    let limits = Limits { takes: Duration::from_millis(200), brief: Duration::from_millis(200), ..WIDE };
    let server = Server::start_with(fresh_snapshot(), limits).await;
    let holders = Arc::strong_count(&server.chronicle);
    let mut follower = Follower::start(&server, "", "").await;
    follower.until("id: ").await;
    // Far more than the socket takes, and less than is forgotten.
    falls(&server, "models", KEPT - 10);
    // Until nobody sends any more.
    while Arc::strong_count(&server.chronicle) > holders {
        tokio::time::sleep(limits.takes).await;
    }
    let sent = follower.rest().await;
    assert!(!sent.ends_with("0\r\n\r\n") && !sent.contains("\"lost\""), "it looks whole");
    assert_eq!(server.get("/api/v1/volumes").await.status, StatusCode::OK);
}

#[tokio::test]
async fn followers_have_room_of_their_own_and_no_more() {
    let server = Server::start_with(fresh_snapshot(), Limits { readers: 4, followers: 2, ..WIDE }).await;
    let mut followers = Vec::new();
    for _ in 0..2 {
        let mut follower = Follower::start(&server, "", "").await;
        follower.until("retry: ").await;
        followers.push(follower);
    }
    let refused = server.raw("/api/v1/events?follow=true").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\r\nretry-after: "), "{refused}");
    for path in ["/metrics", "/api/v1/volumes"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    followers.pop();
    // The place is free once the agent has noticed, also where nothing is sent.
    loop {
        let mut next = Follower::start(&server, "", "").await;
        if next.until("\r\n").await.contains("200 OK") {
            return;
        }
    }
}

#[tokio::test]
async fn a_crowd_of_silent_slow_and_following_clients_does_not_hold_up_a_scrape() {
    let many = (0..300).map(|number| quiet_volume(&format!("v{number}"))).collect();
    let limits = Limits { silent: 16, scrapers: 4, readers: 8, followers: 8, ..WIDE };
    let server = Server::start_with(Snapshot { volumes: many, ..fresh_snapshot() }, limits).await;
    let mut crowd = Vec::new();
    for number in 0..160 {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        let head = match number % 5 {
            0 => "",
            1 => "GET /api/v1/volumes HTTP/1.1\r\nhost",
            2 => "GET /api/v1/volumes HTTP/1.1\r\nhost: x\r\n\r\n",
            3 => "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n",
            _ => "GET /api/v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n",
        };
        // Some are shown out at once.
        let _ = stream.write_all(head.as_bytes()).await;
        crowd.push(stream);
        falls(&server, "v1", 50);
        let answer = server.get("/metrics").await;
        assert_eq!(answer.status, StatusCode::OK, "with {number} clients");
    }
}
