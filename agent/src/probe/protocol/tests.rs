//! What is encoded comes back, and nothing else is accepted.

use agent_core::errno::Errno;
use agent_core::id::{MountId, SuperblockId};
use agent_core::observation::{NotRun, ProbeOk, ProbeResult, ProbeStep};
use agent_core::path::BytePath;
use agent_core::volume::{ProbeUser, Sentinel};
use proptest::prelude::*;

use super::*;

fn any_step() -> impl Strategy<Value = ProbeStep> {
    (1_u8..=5).prop_map(|byte| step_from_byte(byte).unwrap())
}

fn any_superblock() -> impl Strategy<Value = SuperblockId> {
    (any::<u32>(), any::<u32>()).prop_map(|(major, minor)| SuperblockId { major, minor })
}

fn any_sentinel() -> impl Strategy<Value = Sentinel> {
    (any::<Vec<u8>>(), any::<Option<Vec<u8>>>())
        .prop_map(|(path, content)| Sentinel { path: BytePath::new(path), content })
}

fn any_user() -> impl Strategy<Value = ProbeUser> {
    any::<(u32, u32, Vec<u32>)>().prop_map(|(uid, gid, groups)| ProbeUser { uid, gid, groups })
}

fn any_planting() -> impl Strategy<Value = Planting> {
    any::<(Vec<u8>, Vec<u8>, bool, bool)>().prop_map(|(path, content, is_chosen, may_adopt)| Planting {
        path: BytePath::new(path),
        content,
        is_chosen,
        may_adopt,
    })
}

fn any_request() -> impl Strategy<Value = Request> {
    let whom = (proptest::option::of(any_user()), any::<bool>(), proptest::option::of(any_planting()));
    (any_look(), whom).prop_map(|(look, (user, is_automount, planting))| Request {
        user,
        is_automount,
        planting,
        ..look
    })
}

fn any_look() -> impl Strategy<Value = Request> {
    let sentinel = proptest::option::of(any_sentinel());
    let paths = any::<[Vec<u8>; 2]>();
    (paths, any_superblock(), any::<u32>(), any::<String>(), sentinel, any::<bool>()).prop_map(
        |([path, root], superblock, mount_id, fstype, sentinel, write)| Request {
            mountpoint: BytePath::new(path),
            root: BytePath::new(root),
            superblock,
            mount_id: MountId(mount_id),
            fstype,
            sentinel,
            write,
            user: None,
            is_automount: false,
            planting: None,
        },
    )
}

fn any_result() -> impl Strategy<Value = ProbeResult> {
    let ok = || {
        (any::<u64>(), any::<[bool; 3]>(), any::<[Option<String>; 2]>()).prop_map(
            |(root_inode, [read_data, read_device, wrote_data], [fsid, uuid])| ProbeOk {
                root_inode,
                read_data,
                read_device,
                wrote_data,
                fsid,
                uuid,
            },
        )
    };
    prop_oneof![
        ok().prop_map(ProbeResult::Ok),
        (any::<u16>(), ok()).prop_map(|(errno, read)| ProbeResult::WriteFailed { errno: Errno(errno), read }),
        (any_step(), any::<u16>())
            .prop_map(|(step, errno)| ProbeResult::Failed { step, errno: Errno(errno) }),
        any_superblock().prop_map(|found| ProbeResult::WrongMount { found }),
        any_step().prop_map(|step| ProbeResult::TimedOut { step }),
        Just(ProbeResult::SentinelMissing),
        Just(ProbeResult::SentinelDiffers),
        Just(ProbeResult::SentinelUnusable),
        Just(ProbeResult::NotRun(NotRun::TooManyAbandoned)),
        Just(ProbeResult::NotRun(NotRun::WorkerLost)),
        Just(ProbeResult::NotRun(NotRun::Unreachable)),
        Just(ProbeResult::NotRun(NotRun::NotThatUser)),
    ]
}

fn any_planted() -> impl Strategy<Value = Result<Planted, PlantFault>> {
    let faults = [
        PlantFault::Exists,
        PlantFault::Empty,
        PlantFault::Unusable,
        PlantFault::NoDirectory,
        PlantFault::NoRoom,
        PlantFault::ReadBack { errno: None, is_removed: true },
        PlantFault::ReadBack { errno: Some(Errno(5)), is_removed: false },
    ];
    prop_oneof![
        any::<Vec<u8>>().prop_map(|content| Ok(Planted::Written(content))),
        any::<Vec<u8>>().prop_map(|content| Ok(Planted::Found(content))),
        any::<Vec<u8>>().prop_map(|content| Ok(Planted::Adopted(content))),
        any_result().prop_map(|result| Err(PlantFault::Look(result))),
        any::<u16>().prop_map(|errno| Err(PlantFault::Write(Errno(errno)))),
        prop::sample::select(faults.to_vec()).prop_map(Err),
    ]
}

fn any_reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        Just(Reply::Ready),
        any::<String>().prop_map(Reply::Refused),
        any_result().prop_map(Reply::Done),
        any_planted().prop_map(Reply::Planted),
    ]
}

proptest! {
    #[test]
    fn every_request_comes_back(request in any_request()) {
        prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
    }

    #[test]
    fn every_reply_comes_back(reply in any_reply()) {
        prop_assert_eq!(Reply::decode(&reply.encode()), Ok(reply));
    }

    #[test]
    fn every_shortened_body_is_refused(request in any_request(), cut in any::<prop::sample::Index>()) {
        let body = request.encode();
        prop_assert!(Request::decode(&body[..cut.index(body.len())]).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes in any::<Vec<u8>>()) {
        // What is accepted by chance must be exactly what would have been sent.
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(), bytes.clone());
        }
        if let Ok(reply) = Reply::decode(&bytes) {
            prop_assert_eq!(reply.encode(), bytes);
        }
    }

    #[test]
    fn frames_survive_any_split(
        bodies in prop::collection::vec(any::<Vec<u8>>(), 0..5),
        chunk in 1_usize..7,
    ) {
        let stream: Vec<u8> = bodies.iter().flat_map(|body| frame(body).unwrap()).collect();
        let (mut received, mut taken) = (BytesMut::new(), Vec::new());
        for part in stream.chunks(chunk) {
            received.extend_from_slice(part);
            while let Some(body) = take_body(&mut received).unwrap() {
                taken.push(body.to_vec());
            }
        }
        prop_assert_eq!(taken, bodies);
        prop_assert!(received.is_empty());
    }
}

#[test]
fn a_path_that_is_not_utf8_arrives_unchanged() {
    let request = Request {
        mountpoint: BytePath::new(*b"/mnt/caf\xe9\n\\"),
        superblock: SuperblockId { major: 0, minor: 1_048_575 },
        mount_id: MountId(7),
        root: BytePath::new(*b"/caf\xe9"),
        fstype: String::from("fuse.sshfs"),
        sentinel: Some(Sentinel { path: BytePath::new(*b"\xff"), content: Some(vec![0, 255]) }),
        write: false,
        user: Some(ProbeUser { uid: 1000, gid: 100, groups: vec![4] }),
        is_automount: true,
        planting: None,
    };
    assert_eq!(Request::decode(&request.encode()), Ok(request));
}

#[test]
fn bodies_that_are_too_long_are_refused_on_both_sides() {
    assert_eq!(frame(&vec![0; BODY_MAX + 1]), Err(Malformed::TooLong(BODY_MAX + 1)));
    assert!(frame(&vec![0; BODY_MAX]).is_ok());
    assert!(matches!(take_body(&mut BytesMut::from([255; 8].as_slice())), Err(Malformed::TooLong(_))));
}

#[test]
fn bytes_after_the_message_are_refused() {
    let mut body = Reply::Ready.encode();
    body.push(0);
    assert_eq!(Reply::decode(&body), Err(Malformed::Long));
}

#[test]
fn only_steps_have_a_progress_byte() {
    let known = (0..=u8::MAX).filter(|byte| step_from_byte(*byte).is_some());
    assert_eq!(known.collect::<Vec<u8>>(), [1, 2, 3, 4, 5]);
    assert!((1..=5).all(|byte| step_from_byte(byte).map(step_to_byte) == Some(byte)));
}
