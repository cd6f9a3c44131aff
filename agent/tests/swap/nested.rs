//! Binds of a volume that lie inside other binds of it, as most containers have them: what they show and what they
//! allow is never that of the one around them.

use std::path::{Path, PathBuf};

use agent_core::observation::PlanReport;
use agent_core::remediation::consumers::Holding;
use agent_core::remediation::{Action, Outcome, Refusal};
use agent_core::topology::Mount;
use agent_core::volume::Reach;

use super::Test;
use super::block::Device;
use super::consumers::{break_it, device_plan};
use super::container::Hammer;
use super::lab::{
    Alone, Lab, Namespace, Process, assert_gap, has_beneath, run, stage_by_command, swap_after, text,
    wait_for,
};

pub(crate) const TESTS: &[Test] = &[
    ("a_read_only_bind_inside_a_writable_one_stays_so_in_50_swaps", a_read_only_bind_inside_a_writable_one),
    ("a_bind_inside_a_bind_keeps_no_device_from_its_repair", a_bind_inside_a_bind_of_a_device),
    ("where_the_outer_bind_is_in_use_what_is_inside_comes_back", where_the_outer_bind_is_in_use),
    ("what_is_unbindable_inside_another_is_named_and_nothing_goes", what_is_unbindable_inside_another),
];

/// A container with the volume at `data`, its directory `other` read-only at `data/x`, and `other/deep` at `data/x/y`.
struct Nested {
    namespace: Namespace,
    data: PathBuf,
    inside: PathBuf,
    deep: PathBuf,
}

impl Nested {
    /// The volume must be mounted; its directories are made. Where programs must not get, there is a file `bare`.
    fn new(lab: &Lab) -> Self {
        run(&["sh", "-c", &fill("first"), text(&lab.mountpoint)]);
        let namespace = Namespace::new("private");
        let data = lab.directory("container/data");
        let (inside, deep) = (data.join("x"), data.join("x/y"));
        let bind = |from: &str, to: &Path| {
            namespace.run(&["mount", "--bind", text(&lab.mountpoint.join(from)), text(to)]);
        };
        bind("", &data);
        bind("other", &inside);
        namespace.run(&["mount", "-o", "remount,bind,ro,nosuid", text(&inside)]);
        bind("other/deep", &deep);
        Self { namespace, data, inside, deep }
    }

    fn stacks(&self) -> [Vec<Mount>; 3] {
        [&self.data, &self.inside, &self.deep].map(|place| self.namespace.stack_at(place))
    }

    /// Everywhere one deep and the volume's own superblock, with the options and the roots of before.
    fn assert_follows(&self, lab: &Lab, before: &[Vec<Mount>; 3], report: &PlanReport) {
        assert!(report.outcome.is_success(), "{report:#?}");
        let superblock = lab.top().unwrap().superblock;
        for (now, before) in self.stacks().iter().zip(before) {
            assert!(now.len() == 1 && now[0].superblock == superblock, "{now:#?} {report:#?}");
            assert_eq!((&now[0].options, &now[0].root), (&before[0].options, &before[0].root));
        }
        let content = self.namespace.run(&["cat", text(&self.deep.join("file"))]);
        assert_eq!(content, self.namespace.run(&["cat", text(&self.data.join("other/deep/file"))]));
    }
}

fn fill(content: &str) -> String {
    format!(
        "mkdir -p $0/x $0/other/y $0/other/deep && touch $0/x/bare $0/other/y/bare && \
         echo {content} | tee $0/file $0/other/file > $0/other/deep/file"
    )
}

fn a_read_only_bind_inside_a_writable_one() {
    // A namespace that another test makes has copies of what is counted here.
    let _alone = Alone::begin();
    let lab = Lab::new("nested");
    lab.mount_tmpfs("first");
    let container = Nested::new(&lab);
    let before = container.stacks();
    let hammers = [
        ("data", &container.data, "write"),
        ("inside", &container.inside, "readonly"),
        ("deep", &container.deep, "write"),
    ];
    let hammers = hammers
        .map(|(what, place, mode)| (what, Hammer::start(&lab, Some(&container.namespace), place, mode)));
    for round in 0..50 {
        let script = format!("mount -t tmpfs new \"$0\" && {}", fill(&round.to_string()));
        let mut actions = swap_after(stage_by_command(&["sh", "-c", &script, "{target}"]), false, None);
        let holding = Some(Holding::of(&lab.top().unwrap()));
        actions.insert(4, Action::SwapConsumers { holding, ids: None, reach: Reach::Unowned });
        let report = lab.execute(lab.plan(actions));
        container.assert_follows(&lab, &before, &report);
        assert_gap(&report);
        // The one that came with the namespace, and the three.
        assert_eq!(report.left_behind.len(), 4, "{report:#?}");
    }
    for (what, hammer) in hammers {
        let (good, bad) = hammer.stop();
        println!("{what}: {good} rounds in 50 swaps, {bad} of them bad");
        assert!(good > 1_000, "{what}: only {good}");
        assert!(bad == 0 || !has_beneath(), "{what}: {bad} of {good}");
    }
}

fn device_with_nested(lab: &Lab, device: &Device) -> Nested {
    run(&["mount", &device.path, text(&lab.mountpoint)]);
    let container = Nested::new(lab);
    run(&["sync", "-f", text(&lab.mountpoint)]);
    container
}

fn a_bind_inside_a_bind_of_a_device() {
    let _alone = Alone::begin();
    let lab = Lab::new("nested-device");
    let device = Device::new(&lab, "image");
    let container = device_with_nested(&lab, &device);
    let before = container.stacks();
    for _ in 0..3 {
        break_it(&lab, &device);
        let report = lab.execute(device_plan(&lab, &device));
        container.assert_follows(&lab, &before, &report);
        container.namespace.run(&["touch", text(&container.data.join("writable"))]);
        let refused = format!("! touch {}/x 2>/dev/null", text(&container.inside));
        container.namespace.run(&["sh", "-c", &refused]);
        lab.assert_unstaged();
    }
}

fn where_the_outer_bind_is_in_use() {
    let _alone = Alone::begin();
    let lab = Lab::new("nested-busy");
    let device = Device::new(&lab, "image");
    let container = device_with_nested(&lab, &device);
    let file = container.data.join("file");
    let argv = container.namespace.command(&["sh", "-c", "exec sleep 600 < $0", text(&file)]);
    let holder = Process::start(&argv.iter().map(String::as_str).collect::<Vec<_>>());
    let open = format!("/proc/{}/fd/0", holder.id());
    wait_for("the file is open", || std::fs::read_link(&open).is_ok_and(|path| path.ends_with("file")));
    let told = |stacks: [Vec<Mount>; 3]| {
        stacks.map(|stack| {
            stack.into_iter().map(|mount| (mount.superblock, mount.root, mount.options)).collect::<Vec<_>>()
        })
    };
    let before = told(container.stacks());
    let report = lab.execute(device_plan(&lab, &device));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
    assert_eq!(told(container.stacks()), before, "{report:#?}");
    let device_of = |place: &Path| container.namespace.run(&["stat", "-c", "%d", text(place)]);
    assert_eq!(device_of(&container.deep), device_of(&container.data));
    drop(holder);
    let before = container.stacks();
    let report = lab.execute(device_plan(&lab, &device));
    container.assert_follows(&lab, &before, &report);
}

fn what_is_unbindable_inside_another() {
    let _alone = Alone::begin();
    let lab = Lab::new("nested-unbindable");
    let device = Device::new(&lab, "image");
    let container = device_with_nested(&lab, &device);
    container.namespace.run(&["mount", "--make-unbindable", text(&container.inside)]);
    let before = container.stacks();
    let report = lab.execute(device_plan(&lab, &device));
    assert_eq!(report.outcome, Outcome::Refused(Refusal::Busy), "{report:#?}");
    assert!(report.steps.iter().any(|step| step.contains("it is unbindable")), "{report:#?}");
    assert_eq!(container.stacks(), before, "{report:#?}");
    container.namespace.run(&["touch", text(&container.data.join("writable"))]);
    container.namespace.run(&["mount", "--make-private", text(&container.inside)]);
    let before = container.stacks();
    let report = lab.execute(device_plan(&lab, &device));
    container.assert_follows(&lab, &before, &report);
}
