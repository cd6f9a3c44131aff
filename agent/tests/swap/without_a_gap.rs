//! What programs see while mounts are swapped under them.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Test;
use super::lab::{Lab, assert_gap, has_beneath, stage_tmpfs, swap_after};

pub(crate) const TESTS: &[Test] = &[
    ("a_reader_never_finds_the_bare_directory_in_200_swaps", a_reader_never_finds_the_bare_directory),
    ("a_read_only_volume_is_never_writable_in_100_swaps", a_read_only_volume_is_never_writable),
];

/// Does something to a path over and over, on two threads, until told to stop; gives all results counted.
fn hammer<T: Send + 'static>(
    stop: &AtomicBool,
    act: impl Fn() -> T + Sync,
    is_good: impl Fn(&T) -> bool + Sync,
) -> (u64, Vec<T>) {
    let work = || {
        let (mut good, mut bad) = (0, Vec::new());
        while !stop.load(Ordering::Relaxed) {
            let result = act();
            if is_good(&result) { good += 1 } else { bad.push(result) }
        }
        (good, bad)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(work);
        let (good, mut bad) = work();
        let (more, others) = other.join().unwrap();
        bad.extend(others);
        (good + more, bad)
    })
}

fn swap_many(lab: &Lab, count: u32, readonly: bool) {
    for round in 0..count {
        let old = lab.top().unwrap().superblock;
        let mut actions = swap_after(stage_tmpfs(&round.to_string()), readonly, None);
        // Unstage comes before verify here, so that the private place is long gone when the reader looks.
        actions.swap(3, 4);
        let report = lab.execute(lab.plan(actions));
        assert_gap(&report);
        lab.assert_replaced(old, &report);
    }
}

fn swap_under<T: Send + 'static>(
    lab: &Lab,
    count: u32,
    readonly: bool,
    act: impl Fn(&Path) -> T + Sync + Send,
    is_good: impl Fn(&T) -> bool + Sync + Send,
) -> (u64, Vec<T>) {
    let stop = AtomicBool::new(false);
    let file = lab.mountpoint.join("file");
    std::thread::scope(|scope| {
        let hammer = scope.spawn(|| hammer(&stop, || act(&file), is_good));
        let swaps =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| swap_many(lab, count, readonly)));
        stop.store(true, Ordering::Relaxed);
        let result = hammer.join().unwrap();
        swaps.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        result
    })
}

fn a_reader_never_finds_the_bare_directory() {
    let lab = Lab::new("reader");
    // What a reader of the bare directory would find.
    std::fs::write(lab.mountpoint.join("bare"), "").unwrap();
    lab.mount_tmpfs("first");
    let (good, bad) = swap_under(
        &lab,
        200,
        false,
        |file| {
            (
                std::fs::read(file).map(|content| content.len()),
                file.with_file_name("bare").symlink_metadata().is_ok(),
            )
        },
        |(content, is_bare)| content.as_ref().is_ok_and(|length| *length > 0) && !is_bare,
    );
    println!("{good} reads in 200 swaps, {} of them bad", bad.len());
    // Before 6.5 a reader may fall into the short gap, which the report then names.
    assert!(bad.is_empty() || !has_beneath(), "{} of {good} reads failed, first {:?}", bad.len(), bad[0]);
    assert!(good > 1_000, "only {good} reads");
}

fn a_read_only_volume_is_never_writable() {
    let lab = Lab::new("readonly");
    lab.mount_tmpfs("first");
    super::lab::run(&["mount", "-o", "remount,bind,ro", super::lab::text(&lab.mountpoint)]);
    let (good, bad) = swap_under(
        &lab,
        100,
        true,
        |file| std::fs::write(file.with_file_name("intruder"), "x"),
        |result| result.as_ref().is_err_and(|error| error.kind() == ErrorKind::ReadOnlyFilesystem),
    );
    println!("{good} refused writes in 100 swaps, {} not refused", bad.len());
    assert!(
        bad.is_empty() || !has_beneath(),
        "{} of {good} writes were not refused, first {:?}",
        bad.len(),
        bad[0]
    );
    assert!(good > 1_000, "only {good} writes");
    // Of the mount alone, never of the superblock.
    let top = lab.top().unwrap();
    assert!(top.options.has("ro") && top.super_options.has("rw"), "{top:?}");
}
