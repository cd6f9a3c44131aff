//! The volume plugin.

use std::sync::Arc;
use std::time::Duration;

use agent_core::observation::{ProbeOk, ProbeResult};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{Server, fresh_snapshot};
use crate::export::Snapshot;
use crate::export::sample::{quiet_volume, seconds};

#[tokio::test]
async fn docker_is_told_the_truth_and_changes_nothing() {
    let mut server = Server::start(fresh_snapshot()).await;
    server.answer_orders(|volume| volume.condition.message = "looked".to_owned());
    let plugin = server.directory.path().join("p");
    let ask = async |path: &str, body: &str| {
        let mut stream = UnixStream::connect(&plugin).await.unwrap();
        let request =
            format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("content-type: application/vnd.docker.plugins.v1.1+json"), "{text}");
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str::<Value>(body).unwrap())
    };
    assert_eq!(ask("/Plugin.Activate", "").await.1["Implements"][0], "VolumeDriver");
    assert_eq!(ask("/VolumeDriver.Capabilities", "{}").await.1["Capabilities"]["Scope"], "local");
    let (_, list) = ask("/VolumeDriver.List", "{}").await;
    let names: Vec<_> = list["Volumes"].as_array().unwrap().iter().map(|volume| &volume["Name"]).collect();
    // Not the one that was found: its name is its place.
    assert_eq!(names, ["models", "scratch", "backup"]);
    let (status, one) = ask("/VolumeDriver.Get", "{\"Name\":\"models\",\"Opts\":{}}").await;
    assert_eq!((status, &one["Err"], &one["Volume"]["Mountpoint"]), (200, &"".into(), &"/mnt/models".into()));
    let told = &one["Volume"]["Status"];
    assert_eq!(
        (&told["State"], &told["Reason"], &told["Checked"]),
        (&"recovering".into(), &"stale".into(), &true.into())
    );
    assert_eq!(told["Message"], "looked");
    // One that hangs is answered with what is known, and why it is no more.
    let (status, hung) = ask("/VolumeDriver.Get", "{\"Name\":\"scratch\"}").await;
    let told = &hung["Volume"]["Status"];
    assert_eq!((status, &told["Sick"], &told["Checked"]), (200, &true.into(), &false.into()));
    assert_eq!(told["NotChecked"], "the probe has not answered");
    assert_eq!(ask("/VolumeDriver.Path", "{\"Name\":\"backup\"}").await.1["Mountpoint"], "/mnt/backup");
    for (path, body, status, words) in [
        ("/VolumeDriver.Get", "{\"Name\":\"x\"}", 500, "no volume `x`"),
        // Docker keeps to a driver that knows a name: places are no names.
        ("/VolumeDriver.Get", "{\"Name\":\"mnt/models\"}", 500, "no volume `mnt/models`"),
        ("/VolumeDriver.Path", "{\"Name\":\"/mnt/models\"}", 500, "no volume"),
        ("/VolumeDriver.Get", "{", 400, "not understood"),
        ("/VolumeDriver.Create", "{\"Name\":\"x\"}", 500, "only tells"),
        ("/VolumeDriver.Mount", "{\"Name\":\"models\",\"ID\":\"1\"}", 500, "only tells"),
        ("/VolumeDriver.Unmount", "{\"Name\":\"models\",\"ID\":\"1\"}", 500, "only tells"),
        ("/VolumeDriver.Remove", "{\"Name\":\"models\"}", 500, "only tells"),
        ("/metrics", "", 404, "nothing at /metrics"),
    ] {
        let (found, told) = ask(path, body).await;
        assert_eq!(found, status, "{path}");
        assert!(told["Err"].as_str().unwrap().contains(words), "{told}");
    }
    // An automount that is in order is told of from memory.
    let mut trap = quiet_volume("trap");
    trap.is_automount = true;
    trap.last_probe = Some((seconds(1), Duration::ZERO, ProbeResult::Ok(ProbeOk::default())));
    server.publish.send_replace(Arc::new(Snapshot { volumes: vec![trap], ..fresh_snapshot() }));
    let (_, one) = ask("/VolumeDriver.Get", "{\"Name\":\"trap\"}").await;
    assert_eq!(one["Volume"]["Status"]["Checked"], Value::Bool(false));
}
