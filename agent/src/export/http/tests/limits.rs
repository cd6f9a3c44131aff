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
use super::super::scrape::SCRAPE_LASTS;
use super::{PATIENCE, Server, WIDE, fresh_snapshot};
use crate::export::Snapshot;
use crate::export::sample::{quiet_volume, sample_snapshot};
use crate::export::text::Format;
use crate::sys::clock;

#[tokio::test]
async fn clients_that_send_nothing_do_not_keep_others_out() {
    let limits = Limits { head: Duration::from_millis(500), connections: 2, readers: 2, ..WIDE };
    let server = Server::start_with(sample_snapshot(), limits).await;
    let mut silent = Vec::new();
    for _ in 0..4 {
        silent.push(UnixStream::connect(server.socket()).await.unwrap());
    }
    // Answered once those in front have been thrown out.
    assert_eq!(server.get("/api/v1/doctor").await.status, StatusCode::OK);
}

#[tokio::test]
async fn clients_that_do_not_read_do_not_keep_others_out() {
    let limits = Limits { brief: Duration::from_secs(1), connections: 1, readers: 1, ..WIDE };
    let many = (0..500).map(|number| quiet_volume(&format!("v{number}"))).collect();
    let server = Server::start_with(Snapshot { volumes: many, ..sample_snapshot() }, limits).await;
    let mut lazy = UnixStream::connect(server.socket()).await.unwrap();
    // The answer is larger than what the socket takes in without a reader.
    lazy.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(server.get("/api/v1/doctor").await.status, StatusCode::OK);
    let mut cut_off = String::new();
    lazy.read_to_string(&mut cut_off).await.unwrap();
    let (head, body) = cut_off.split_once("\r\n\r\n").unwrap();
    let promised = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
    assert!(body.len() < promised.parse().unwrap(), "the lazy client got everything");
}

#[tokio::test]
async fn readers_that_do_not_read_keep_no_scraper_out() {
    let limits = Limits { connections: 3, readers: 2, ..WIDE };
    let many = (0..500).map(|number| quiet_volume(&format!("v{number}"))).collect();
    let server = Server::start_with(Snapshot { volumes: many, ..fresh_snapshot() }, limits).await;
    let mut lazy = Vec::new();
    for _ in 0..2 {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        stream.write_all(b"GET /api/v1/volumes HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        // Its answer has begun, and is larger than what the socket takes in without a reader.
        stream.readable().await.unwrap();
        lazy.push(stream);
    }
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.status, StatusCode::OK, "{path}");
    }
    let (status, json) = server.json("/api/v1/doctor").await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(json["error"].as_str().is_some_and(|error| error.contains("try again")), "{json}");
    lazy.pop();
    // The place of a reader who leaves is free once the agent has noticed.
    while server.get("/api/v1/doctor").await.status != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn slow_readers_have_their_time_and_slow_scrapers_little() {
    let limits = Limits { brief: Duration::from_millis(500), whole: PATIENCE, ..WIDE };
    let many = (0..500).map(|number| quiet_volume(&format!("v{number}"))).collect();
    let server = Server::start_with(Snapshot { volumes: many, ..fresh_snapshot() }, limits).await;
    let ask = async |path: &str| {
        let mut stream = UnixStream::connect(server.socket()).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
        stream
    };
    let (mut reader, mut scraper) = (ask("/api/v1/volumes").await, ask("/metrics").await);
    reader.readable().await.unwrap();
    // Longer than the one may take, and a small part of what the other may.
    tokio::time::sleep(limits.brief * 4).await;
    let is_whole = async |stream: &mut UnixStream| {
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        // Cut off before it began.
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
        let promised = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        body.len() == promised.parse::<usize>().unwrap()
    };
    assert!(!is_whole(&mut scraper).await, "a scraper that does not read was waited for");
    assert!(is_whole(&mut reader).await, "a reader was cut off");
}

#[tokio::test]
async fn scrapes_of_one_snapshot_share_one_text_for_each_format() {
    let server = Server::start(fresh_snapshot()).await;
    let shared = &server.shared;
    let scrape = |format| shared.scraped.text(&shared.metrics, &shared.snapshot(), format);
    for format in Format::ALL {
        let first = scrape(format);
        // Only the first was rendered: they are the same bytes in memory, unless this took longer than one lasts.
        let made = || shared.scraped.with_last(format, |last| last.made).unwrap();
        let of_first = made();
        let second = scrape(format);
        assert_eq!(first.as_ptr() == second.as_ptr(), made() == of_first);
        server.publish.send_replace(Arc::new(fresh_snapshot()));
        assert_ne!(scrape(format).as_ptr(), second.as_ptr());
        let aged = clock::now() - SCRAPE_LASTS;
        shared.scraped.with_last(format, |last| last.made = aged).unwrap();
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
        assert_eq!(check::turn(Peer::Remote, &volume), expected, "case {number}");
        assert_eq!(check::turn(local, &volume), now, "case {number}");
    }
}
