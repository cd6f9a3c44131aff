//! What clients may use up, and what those who may not change anything may have done.

use std::sync::Arc;
use std::time::Duration;

use agent_core::observation::{ProbeOk, ProbeResult};
use agent_core::status::VolumeStatus;
use agent_core::verdict::HealthState;
use hyper::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::super::check::{self, Turn};
use super::super::listen::{Limits, Peer};
use super::super::texts::LASTS;
use super::{PATIENCE, Server, WIDE, fresh_snapshot};
use crate::export::Snapshot;
use crate::export::sample::{quiet_volume, sample_snapshot};
use crate::export::text::Format;
use crate::sys::clock;

#[tokio::test]
async fn clients_that_send_nothing_do_not_keep_others_out() {
    let limits = Limits { silent: 2, readers: 2, ..WIDE };
    let server = Server::start_with(sample_snapshot(), limits).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(UnixStream::connect(server.socket()).await.unwrap());
    }
    for path in ["/api/v1/doctor", "/metrics"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    // Those in front were shown out: they may not wait for their time to be up.
    let mut nothing = String::new();
    assert_eq!(silent[0].read_to_string(&mut nothing).await.unwrap(), 0);
}

/// A server of many volumes, whose answers are larger than what a socket takes in without a reader.
async fn server_of_many(limits: Limits) -> Server {
    let many = (0..500).map(|number| quiet_volume(&format!("v{number}"))).collect();
    Server::start_with(Snapshot { volumes: many, ..fresh_snapshot() }, limits).await
}

/// How much of an answer came, and how much was promised.
async fn received(mut stream: UnixStream) -> (usize, usize) {
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    // On a slow machine even the head may not have come.
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return (0, usize::MAX) };
    let promised = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    (body.len(), promised.parse().unwrap())
}

#[tokio::test]
async fn scrapers_that_do_not_read_do_not_keep_others_out() {
    let server = server_of_many(Limits { scrapers: 2, ..WIDE }).await;
    let mut lazy = Vec::new();
    for _ in 0..10 {
        let stream = server.ask("/metrics").await;
        stream.readable().await.unwrap();
        lazy.push(stream);
    }
    assert_eq!(server.get("/metrics").await.status, StatusCode::OK);
    let (got, promised) = received(lazy.remove(0)).await;
    assert!(got < promised, "the first was waited for");
}

#[tokio::test]
async fn readers_that_do_not_read_keep_no_scraper_out() {
    let server = server_of_many(Limits { scrapers: 1, readers: 2, ..WIDE }).await;
    let mut lazy = Vec::new();
    for _ in 0..2 {
        let stream = server.ask("/api/v1/volumes").await;
        // Its answer has begun.
        stream.readable().await.unwrap();
        lazy.push(stream);
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    let refused = server.raw("/api/v1/doctor").await;
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("\r\nretry-after: "), "{refused}");
    assert!(refused.contains("try again"), "{refused}");
    lazy.pop();
    // The place of a reader who leaves is free once the agent has noticed.
    while server.get("/api/v1/doctor").await.status != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn oversized_and_broken_requests_are_refused_and_cost_nothing() {
    let server = Server::start(sample_snapshot()).await;
    let long = "x".repeat(60_000);
    let many: String = (0..200).map(|number| format!("h{number}: v\r\n")).collect();
    for request in [
        format!("GET /{long} HTTP/1.1\r\nhost: x\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: x\r\ncookie: {long}\r\n\r\n"),
        format!("GET / HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
        format!("POST /api/v1/pause HTTP/1.1\r\nhost: x\r\ncontent-length: 60000\r\n\r\n{long}"),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "\0\x01\x16\x03\x01 nonsense\r\n\r\n".to_owned(),
        "POST /api/v1/sentinel HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(),
        format!("GET /?q={} HTTP/1.1\r\nhost: x\r\n\r\n", "%ff&q=%00".repeat(9)),
    ] {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        // It may be refused before all of it was sent.
        let _ = stream.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.split_whitespace().nth(1).unwrap_or("4, silently");
        assert!(status.starts_with('4'), "{} gives {answer}", request.chars().take(60).collect::<String>());
    }
    assert_eq!(server.get("/metrics").await.status, StatusCode::OK);
}

#[tokio::test]
async fn slow_readers_have_their_time_and_slow_scrapers_little() {
    let limits = Limits { brief: Duration::from_secs(3), whole: PATIENCE, ..WIDE };
    let server = server_of_many(limits).await;
    let (reader, scraper) = (server.ask("/api/v1/volumes").await, server.ask("/metrics").await);
    reader.readable().await.unwrap();
    // Longer than the one may take, and a small part of what the other may.
    tokio::time::sleep(limits.brief * 2).await;
    let (got, promised) = received(scraper).await;
    assert!(got < promised, "a scraper that does not read was waited for");
    let (got, promised) = received(reader).await;
    assert_eq!(got, promised, "a reader was cut off");
}

#[tokio::test]
async fn scrapes_of_one_snapshot_share_one_text_for_each_format() {
    let server = Server::start(fresh_snapshot()).await;
    let shared = &server.shared;
    let scrape = |format| {
        let snapshot = shared.snapshot();
        shared.scraped.text(format, &snapshot, || shared.metrics.render(&snapshot, format))
    };
    for format in Format::ALL {
        let first = scrape(format);
        // Only the first was rendered: they are the same bytes in memory, unless this took longer than one lasts.
        let made = || shared.scraped.with_last(&format, |last| last.made).unwrap();
        let of_first = made();
        let second = scrape(format);
        assert_eq!(first.as_ptr() == second.as_ptr(), made() == of_first);
        server.publish.send_replace(Arc::new(fresh_snapshot()));
        assert_ne!(scrape(format).as_ptr(), second.as_ptr());
        let aged = clock::now() - LASTS;
        shared.scraped.with_last(&format, |last| last.made = aged).unwrap();
        drop(scrape(format));
        assert!(made() > aged, "an old text was given");
    }
    let texts = Format::ALL.map(scrape);
    assert_ne!(texts[0], texts[1], "one format was given for the other");
}

#[tokio::test]
async fn a_check_of_one_volume_is_not_kept_out_by_those_of_all() {
    let mut server = Server::start(fresh_snapshot()).await;
    server.answer_orders(|_| ());
    let _all = server.shared.checks_of_all.try_acquire_many(2).unwrap();
    assert_eq!(server.json("/api/v1/volumes?check=true").await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.json("/api/v1/volumes/models?check=true").await.0, StatusCode::OK);
}

#[test]
fn over_tcp_looks_are_made_once_a_second_and_not_at_healthy_automounts() {
    let now = clock::now();
    let local = Peer::Local { uid: 0, pid: 1 };
    let looked = |ago: Duration| {
        let looked = Some((now - ago, Duration::ZERO, ProbeResult::Ok(ProbeOk::default())));
        VolumeStatus { last_probe: looked, ..quiet_volume("a") }
    };
    let on_a_trap = |volume: &VolumeStatus| VolumeStatus { is_automount: true, ..volume.clone() };
    // An hour ahead: no machine is so slow that it becomes old while this runs.
    let young = VolumeStatus {
        last_probe: Some((now + Duration::from_secs(3600), Duration::ZERO, ProbeResult::SentinelMissing)),
        ..quiet_volume("a")
    };
    let old = looked(Duration::from_secs(2));
    let mut sick = old.clone();
    sick.condition.state = HealthState::Degraded;
    let stuck = VolumeStatus { stuck_since: Some(now), ..young.clone() };
    let soon = Turn::In(Duration::from_secs(1));
    let now = Turn::In(Duration::ZERO);
    let cases =
        [(on_a_trap(&old), Turn::Never), (on_a_trap(&sick), now), (young, soon), (old, now), (stuck, now)];
    for (number, (volume, expected)) in cases.into_iter().enumerate() {
        assert_eq!(check::turn(Peer::Remote(None), &volume), expected, "case {number}");
        assert_eq!(check::turn(local, &volume), now, "case {number}");
    }
}
