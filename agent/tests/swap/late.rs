//! Consumers that are not as they were when the plan began.

use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Outcome, Refusal};
use agent_core::volume::{Reach, Sentinel};

use super::Test;
use super::container::Container;
use super::lab::{Lab, Namespace, run, stage_by_command, swap_after, text, verify, wait_for};

pub(crate) const TESTS: &[Test] = &[
    ("a_container_that_starts_while_the_new_mount_is_made_follows", a_container_that_starts_meanwhile),
    ("a_consumer_without_the_sentinel_is_left_and_named", a_consumer_without_the_sentinel),
];

fn a_container_that_starts_meanwhile() {
    let lab = Lab::new("late");
    let old = lab.mount_tmpfs("first");
    let (begun, go) = (lab.directory.join("begun"), lab.directory.join("go"));
    let script = format!(
        "mount -t tmpfs new $0 && echo x > $0/file && touch {} && while ! test -e {}; do :; done",
        text(&begun),
        text(&go)
    );
    let mut actions = swap_after(stage_by_command(&["sh", "-c", &script, "{target}"]), false, None);
    let holding = Some(Holding::of(&lab.top().unwrap()));
    actions.insert(4, Action::SwapConsumers { holding, ids: None, reach: Reach::Unowned });
    let plan = lab.plan(actions);
    let (report, container) = std::thread::scope(|scope| {
        let container = scope.spawn(|| {
            wait_for("the plan is at work", || std::fs::symlink_metadata(&begun).is_ok());
            let container = Namespace::new("private");
            std::fs::write(&go, "").unwrap();
            container
        });
        (lab.execute(plan), container.join().unwrap())
    });
    lab.assert_replaced(old, &report);
    let stack = container.stack_at(&lab.mountpoint);
    let new = lab.top().unwrap().superblock;
    assert!(stack.len() == 1 && stack[0].superblock == new, "{stack:#?} {report:#?}");
}

fn a_consumer_without_the_sentinel() {
    let lab = Lab::new("consumer-sentinel");
    let fill = || std::fs::create_dir(lab.mountpoint.join("inner")).unwrap();
    let old = lab.mount_tmpfs("first");
    fill();
    let container = Container::new(&lab);
    let holding = Some(Holding::of(&lab.top().unwrap()));
    let ids = container.stacks(&lab).iter().flatten().map(|mount| mount.id).collect();
    run(&["umount", "--lazy", text(&lab.mountpoint)]);
    lab.mount_tmpfs("second");
    fill();
    let sentinel = Sentinel { path: "absent".into(), content: None };
    let follow = Action::SwapConsumers { holding, ids: Some(ids), reach: Reach::Unowned };
    let mut plan = lab.plan(vec![follow, verify(Some(sentinel)), Action::Unstage]);
    (plan.old, plan.marks) = (Some(old), None);
    let report = lab.execute(plan);
    assert_eq!(report.outcome, Outcome::Refused(Refusal::ConsumersLeft), "{report:#?}");
    let told = format!("{report:#?}");
    let left = |place: &std::path::Path| told.contains(&format!("left {}: swapped, but", text(place)));
    assert!(left(&container.data) && left(&container.readonly) && !left(&container.inner), "{told}");
}
