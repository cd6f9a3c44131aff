//! Wishes, what is written for them, what is pinned of it, and what is refused.

use agent_core::id::{Generation, MountId, SuperblockId};

use super::*;

fn order(sentinel: Option<Sentinel>) -> ProbeOrder {
    ProbeOrder {
        id: ProbeId(1),
        volume: VolumeId::new("v"),
        generation: Generation(1),
        mountpoint: "/mnt/v".into(),
        superblock: SuperblockId { major: 0, minor: 7 },
        mount_id: MountId(7),
        root: "/".into(),
        fstype: "nfs4".into(),
        sentinel,
        write: false,
        user: None,
        is_automount: false,
        deadline: Duration::from_secs(1),
    }
}

fn wish(path: Option<&str>, content: Option<&str>) -> SentinelWish {
    SentinelWish { path: path.map(str::to_owned), content: content.map(str::to_owned), adopt: false }
}

fn sentinel(path: &str, content: Option<&str>) -> Sentinel {
    Sentinel { path: path.into(), content: content.map(|content| content.as_bytes().to_vec()) }
}

fn pin(path: &str, source: Option<&str>) -> Pin {
    let source = source.map(|source| source.as_bytes().to_vec());
    Pin { sentinel: sentinel(path, Some("x")), source }
}

/// What a configuration makes of it, `more` being lines of the table of the volume `v`.
fn configured(pins: &[(&str, Pin)], more: &str) -> Plantings {
    let pins = pins.iter().map(|(id, pin)| (VolumeId::new(*id), pin.clone())).collect();
    let mut plantings = Plantings::new(Settings::default(), pins);
    plantings.configure(&policy(more));
    plantings
}

fn policy(more: &str) -> Policy {
    let text = format!("[[volume]]\nname = \"v\"\nmountpoint = \"/mnt/v\"\n{more}\n");
    config::Config::from_toml(&text).unwrap().policy
}

fn ask(plantings: &mut Plantings, wish: &SentinelWish) -> (bool, oneshot::Receiver<Reply>) {
    let (done, answer) = oneshot::channel();
    (plantings.ask(VolumeId::new("v"), wish, done), answer)
}

type Reply = Result<SentinelAnswer, SentinelRefusal>;

#[test]
fn what_the_wish_leaves_open_is_configured_or_by_lot() {
    let known = sentinel("d/s", Some("known"));
    let from = |wish: SentinelWish, known: Option<&Sentinel>| {
        let wish = configured(&[], "").check(&VolumeId::new("v"), &wish).unwrap();
        let planting = planting(&wish, &order(known.cloned())).unwrap();
        (planting.path.to_string(), planting.content, planting.is_chosen)
    };
    let as_known = || ("d/s".to_owned(), b"known".to_vec(), true);
    assert_eq!(from(wish(None, None), Some(&known)), as_known());
    assert_eq!(from(wish(Some("./d//s"), None), Some(&known)), as_known());
    assert_eq!(from(wish(None, Some("x\n")), Some(&known)), ("d/s".to_owned(), b"x".to_vec(), true));
    let (path, first, is_chosen) = from(wish(None, None), None);
    assert_eq!((path.as_str(), is_chosen), (DEFAULT_SENTINEL, false));
    assert!(first.starts_with(b"mountie-") && first.len() == 24);
    assert_ne!(first, from(wish(Some("other"), None), Some(&known)).1);
}

#[test]
fn a_path_that_leads_out_or_an_empty_content_is_refused_before_the_engine_is_asked() {
    for (path, content) in [("../s", "x"), ("/s", "x"), ("s", "")] {
        let (is_asked, mut answer) = ask(&mut configured(&[], ""), &wish(Some(path), Some(content)));
        assert!(!is_asked, "{path} {content}");
        assert!(matches!(answer.try_recv(), Ok(Err(SentinelRefusal::Wrong(_)))), "{path} {content}");
    }
}

#[test]
fn another_sentinel_than_the_configured_one_is_refused_and_that_one_is_told() {
    let line = "sentinel = { path = \"d/s\", content = \"known\" }";
    for (path, content, flag) in [(Some("s"), None, "--path"), (None, Some("x"), "--content")] {
        let (is_asked, mut answer) = ask(&mut configured(&[], line), &wish(path, content));
        let Ok(Err(SentinelRefusal::Wrong(error))) = answer.try_recv() else { panic!("{path:?}") };
        assert!(!is_asked && error.contains(line) && error.contains(flag), "{error}");
    }
    for wish in [wish(None, None), wish(Some("./d/s"), Some("known\n"))] {
        assert!(ask(&mut configured(&[], line), &wish).0, "{wish:?}");
    }
    let only_path = "sentinel = { path = \"d/s\" }";
    assert!(ask(&mut configured(&[], only_path), &wish(None, Some("x"))).0);
}

#[test]
fn for_who_has_left_while_waiting_nothing_is_begun() {
    let mut plantings = configured(&[], "");
    let (is_asked, left) = ask(&mut plantings, &wish(None, None));
    drop(left);
    assert!(is_asked);
    assert_eq!(plantings.begin(order(None)), Some(ProbeId(1)));
    assert!(plantings.running.is_empty() && plantings.waiting.is_empty());

    let (_, left) = ask(&mut plantings, &wish(Some("first"), None));
    let (_, mut stays) = ask(&mut plantings, &wish(Some("second"), None));
    drop(left);
    plantings.refuse(&VolumeId::new("v"), NoErrand::NotThere);
    assert!(matches!(stays.try_recv(), Ok(Err(SentinelRefusal::Sick(_)))));
}

#[test]
fn a_pin_counts_for_its_source_and_goes_with_its_volume() {
    let pins = [("v", pin("s", Some("filer:/a"))), ("w", pin("s", None))];
    let source = |source: &str| format!("source = \"{source}\"");
    let mut plantings = configured(&pins, &source("filer:/a"));
    let id = VolumeId::new("v");
    assert_eq!(plantings.pins().keys().collect::<Vec<_>>(), [&id]);
    assert_eq!(plantings.sentinels(), [(id.clone(), sentinel("s", Some("x")))].into());
    assert!(!plantings.configure(&policy(&source("filer://a/"))));
    assert_eq!(plantings.sentinels().len(), 1, "the same in other words");
    assert!(!plantings.configure(&policy(&source("filer:/b"))));
    assert!(plantings.sentinels().is_empty() && plantings.ignored.contains(&id));
    assert!(!plantings.configure(&policy(&source("filer:/a"))));
    assert_eq!(plantings.sentinels().len(), 1);
    assert!(plantings.configure(&Policy { volumes: Vec::new(), ..policy("") }));
    assert!(plantings.pins().is_empty());
    let of_old = configured(&[("v", pin("s", None))], &source("filer:/a"));
    assert_eq!(of_old.sentinels().len(), 1, "one that names no source counts");
}

#[test]
fn only_what_the_configuration_does_not_say_is_pinned() {
    let planted = Planted::Written(b"x".to_vec());
    // As ordered with a pin that is there already: the order's sentinel is no word of the configuration.
    let ordered = order(Some(sentinel("s", Some("x"))));
    let cases = [
        ("", true),
        ("sentinel = { path = \"s\" }", true),
        ("sentinel = { path = \"s\", content = \"x\\n\" }", false),
    ];
    for (more, is_pinned) in cases {
        let mut plantings = configured(&[], more);
        let (answer, is_new) = plantings.pin(&ordered, "s".into(), &planted);
        assert_eq!((answer.named, answer.pinned, is_new), (true, is_pinned, is_pinned), "{more}");
        assert!(!plantings.pin(&ordered, "s".into(), &planted).1, "it is not new again");
    }
    let found = ProbeOrder { volume: VolumeId::new("/mnt/found"), ..order(None) };
    let (answer, is_new) = configured(&[], "").pin(&found, "s".into(), &planted);
    assert_eq!((answer.named, answer.pinned, is_new), (false, false, false));
}

#[test]
fn every_refusal_names_the_place_and_the_remedy() {
    let errno = agent_core::errno::Errno;
    let faults = [
        (PlantFault::Exists, "--adopt"),
        (PlantFault::Empty, "remove it"),
        (PlantFault::Unusable, "--path"),
        (PlantFault::Write(errno(30)), "EROFS; the volume is read-only"),
        (PlantFault::Write(errno(28)), "ENOSPC; the volume is full"),
        (PlantFault::Write(errno(122)), "EDQUOT; the quota"),
        (PlantFault::Write(errno(13)), "EACCES; the volume refuses it; configure `probe"),
        (PlantFault::ReadBack { errno: Some(errno(5)), is_removed: true }, "met EIO; it is removed again"),
        (PlantFault::ReadBack { errno: None, is_removed: false }, "something else; it could not be removed"),
    ];
    for (fault, remedy) in faults {
        let refusal = refusal(&fault, &order(None), &"s".into());
        let text = refusal.to_string();
        assert!(text.contains("`s` on `v` (/mnt/v)") && text.contains(remedy), "{text}");
        let is_there = matches!(fault, PlantFault::Exists | PlantFault::Empty | PlantFault::Unusable);
        assert_eq!(matches!(refusal, SentinelRefusal::Exists(_)), is_there, "{text}");
    }
    let late = NoAnswer::TimedOut(agent_core::observation::ProbeStep::Write);
    let refusal = hung(&late, &order(None), &"s".into());
    assert!(matches!(&refusal, SentinelRefusal::Sick(text) if text.contains("hangs")), "{refusal}");
}
