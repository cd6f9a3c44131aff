//! procfs as text: lines as kernels write them, and a tree that looks like one.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::*;

#[test]
fn a_line_of_stat_is_understood_whatever_the_name() {
    let line = b"42 (a) b (c) D 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 3 0 1234 0 0";
    let found = stat(line).unwrap();
    assert_eq!((found.comm.as_slice(), found.state, found.parent), (b"a) b (c".as_slice(), b'D', 7));
    assert_eq!((found.threads, found.started, found.is_program), (3, 1234, true));
    let kernel = b"2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0";
    assert!(!stat(kernel).unwrap().is_program);
    assert_eq!(stat(b"42 (cut"), None);
}

#[test]
fn a_call_is_one_of_a_64_bit_program_that_is_in_one() {
    let line = "0 0x3 0x7ffd1 0x1000 0x0 0x0 0x0 0x7ffd00000000 0x7f0000000000\n";
    assert_eq!(call(line), Some(InCall { number: 0, arguments: [3, 0x7ffd1, 0x1000, 0, 0, 0] }));
    for none in [
        "running\n",
        "-1 0x7ffd00000000 0x7f0000000000\n",
        "",
        "3 0x1 0x2 0x3 0x4 0x5 0x6 0xffff0000 0x8048000",
    ] {
        assert_eq!(call(none), None, "{none}");
    }
}

/// A process 10 in a tree of its own.
fn tree(files: &[(&str, &str)], links: &[(&str, &str)]) -> (tempfile::TempDir, Proc) {
    let directory = tempfile::tempdir().unwrap();
    let process = directory.path().join("10");
    for folder in ["fd", "fdinfo", "ns", "task/10"] {
        std::fs::create_dir_all(process.join(folder)).unwrap();
    }
    for (name, text) in files {
        std::fs::write(process.join(name), text).unwrap();
    }
    for (name, target) in links {
        symlink(Path::new(target), process.join(name)).unwrap();
    }
    let root = directory.path().to_owned();
    (directory, Proc { root })
}

const TABLE: &str = "20 1 8:1 / / rw - ext4 /dev/sda1 rw
30 20 0:50 / /mnt/a rw - fuse.x x rw
31 30 0:51 / /mnt/a/b rw - fuse.x x rw
";

#[test]
fn descriptors_are_placed_by_their_mount_and_names_by_their_text() {
    let memory = "....../mnt/a/../a/file\0sub/x\0../up\0";
    let files =
        [("mountinfo", TABLE), ("fdinfo/3", "pos:\t0\nflags:\t02\nmnt_id:\t30\nino:\t9\n"), ("mem", memory)];
    let links = [
        ("fd/3", "/mnt/a/b-not"),
        ("fd/4", "pipe:[77]"),
        ("cwd", "/mnt/a/b"),
        ("ns/mnt", "mnt:[4026531841]"),
    ];
    let (_directory, proc) = tree(&files, &links);
    let mounts = proc.mounts(10);
    let device = |minor: u32| Some(agent_core::id::SuperblockId { major: 0, minor }.to_kernel());
    let descriptor = |number| mounts.at(&proc.of_descriptor(10, number)?);
    let name = |directory, address| mounts.at(&proc.of_name(10, directory, address)?);
    assert_eq!(descriptor(0xffff_ffff_0000_0003), device(50));
    assert_eq!(descriptor(4), None, "a pipe");
    assert_eq!(descriptor(5), None, "not open");
    assert_eq!(name(None, 6), device(50));
    let at = |text: &str| u64::try_from(memory.find(text).unwrap()).unwrap();
    assert_eq!(name(None, at("sub/x")), device(51), "from the working directory");
    let fdcwd = u64::from(libc::AT_FDCWD.cast_unsigned());
    assert_eq!(name(Some(fdcwd), at("../up")), device(50), "out of it");
    assert_eq!(name(Some(3), 0), device(50), "the descriptor itself");
    assert_eq!(name(Some(3), at("sub/x")), device(50));
    assert_eq!(name(None, 1 << 40), None, "no such memory");
    assert_eq!((proc.mnt_ns(10), proc.mnt_ns(11)), (4_026_531_841, 0));
}

#[test]
fn who_waits_for_a_program_does_not_wait_for_storage() {
    let pipe = "[<0>] fifo_open+0x12/0x34\n[<0>] do_dentry_open.isra.0+0x1/0x2\n";
    let fuse = "[<0>] request_wait_answer+0x12/0x34 [fuse]\n[<0>] fuse_file_read_iter+0x1/0x2\n";
    for (stack, wchan, state, expected) in [
        (Some(pipe), "fifo_open", b'S', true),
        (Some(fuse), "request_wait_answer", b'S', false),
        (None, "anon_pipe_read", b'S', true),
        (None, "request_wait_answer", b'S', false),
        (None, "0", b'S', true),
        (None, "0", b'D', false),
    ] {
        let mut files = vec![("wchan", wchan)];
        files.extend(stack.map(|stack| ("stack", stack)));
        let (_directory, proc) = tree(&files, &[]);
        assert_eq!(proc.waits_for_a_program(10, state), expected, "{stack:?} {wchan}");
    }
}

#[test]
fn counters_are_added_up() {
    let status = "Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n";
    let (_directory, proc) = tree(
        &[("status", status), ("io", "syscr: 99\n"), ("task/10/io", "rchar: 9\nsyscr: 3\nsyscw: 4\n")],
        &[],
    );
    assert_eq!((proc.switches(10), proc.data_calls(10), proc.switches(11)), (7, 7, 0));
}
