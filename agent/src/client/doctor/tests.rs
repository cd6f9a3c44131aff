//! What is printed for a report.

use super::*;
use crate::export::sample::{sample_host, sample_snapshot};
use crate::export::view::doctor::MountsView;
use crate::sensor::ProgramState;

#[test]
fn everything_that_does_not_work_has_a_reason() {
    let report = DoctorReport::of_agent(&sample_host(), &sample_snapshot());
    let version = env!("CARGO_PKG_VERSION");
    let expected = format!(
        "\
mountie {version} on kernel 6.12.0-test (x86_64), as the running agent has it

PRIVILEGE      HELD  NEEDED FOR
CAP_BPF        yes   kernel programs
CAP_SYS_ADMIN  no    fanotify and repairs
To grant what is missing: in a systemd unit CapabilityBoundingSet= and AmbientCapabilities= with CAP_SYS_ADMIN; in a \
container the same under securityContext.capabilities.add, without CAP_.

SOURCE        STATE     WHY
bpf           degraded  fexit is refused, continuing with sys_exit
census        running   -
consumers     running   -
fanotify_fs   running   -
fanotify_mnt  off       the kernel is older than 6.15
fuse_daemons  running   -
host_view     running   -
listmount     running   -
mountinfo     running   -
probes        running   -
sysfs         off       `/sys/fs` cannot be read

PROGRAM           FAMILY    HOOK    STATE       WHY            LOST WITHOUT IT
sys_exit          sys_exit  a hook  attached    -              -
vfs_read          fexit     a hook  failed      load: EPERM    some errors (left: probes only)
fuse_request_end  always    a hook  not chosen  family is off  -
"
    );
    assert_eq!(render(&report), expected);
}

#[test]
fn a_program_whose_work_another_one_does_is_no_loss() {
    let mut snapshot = sample_snapshot();
    for program in &mut snapshot.programs {
        program.state = ProgramState::Covered("sys_exit");
    }
    let text = render(&DoctorReport::of_agent(&sample_host(), &snapshot));
    assert!(
        text.contains("vfs_read          fexit     a hook  not needed  covered by sys_exit  -"),
        "{text}"
    );
    assert!(!text.contains("some errors"), "{text}");
}

#[test]
fn what_is_left_out_and_seen_by_nobody_else_is_told_as_lost() {
    let mut snapshot = sample_snapshot();
    for program in &mut snapshot.programs {
        program.state = ProgramState::Forgone("sys_exit does not see it".to_owned());
    }
    let text = render(&DoctorReport::of_agent(&sample_host(), &snapshot));
    let row = "vfs_read          fexit     a hook  not chosen  sys_exit does not see it  some errors (left: probes only)";
    assert!(text.contains(row), "{text}");
}

#[test]
fn many_programs_that_say_the_same_are_one_line() {
    let mut snapshot = sample_snapshot();
    let mut program = snapshot.programs.remove(1);
    program.state = ProgramState::Covered("sys_exit");
    snapshot.programs = vec![program; CROWD];
    let text = render(&DoctorReport::of_agent(&sample_host(), &snapshot));
    assert!(text.contains("8 programs  fexit   a hook … a hook  not needed  covered by sys_exit"), "{text}");
    snapshot.programs.pop();
    let text = render(&DoctorReport::of_agent(&sample_host(), &snapshot));
    assert_eq!(text.matches("vfs_read  ").count(), CROWD - 1, "{text}");
}

#[test]
fn the_code_tells_a_missed_privilege_from_a_host_without_sources() {
    let mut host = sample_host();
    let mut report = DoctorReport::of_agent(&host, &sample_snapshot());
    assert_eq!(code(&report), ExitCode::NoPermission);
    for privilege in &mut host.privileges {
        privilege.missed = false;
    }
    report.host = host;
    assert_eq!(code(&report), ExitCode::Ok);
    assert!(render(&report).contains("CAP_SYS_ADMIN  no (not needed here)"));
    report.sources.clear();
    assert_eq!(code(&report), ExitCode::Unavailable);
}

#[test]
fn a_mount_namespace_that_is_nearly_full_is_told() {
    let mut report = DoctorReport::of_agent(&sample_host(), &sample_snapshot());
    for (count, limit, is_told) in [
        (50_000, Some(100_000), false),
        (50_001, Some(100_000), true),
        (200_000, Some(100_000), true),
        (50_001, None, false),
    ] {
        report.mounts = Some(MountsView { count, limit });
        let told = render(&report).contains(&format!("  {count} of at most 100000 mounts"));
        assert_eq!(told, is_told, "{count} {limit:?}");
    }
}

#[test]
fn a_host_without_any_source_is_told_so() {
    let report = DoctorReport::new(&sample_host(), &std::collections::BTreeMap::new(), &[]);
    let text = render(&report);
    assert!(text.contains("no agent is running"));
    assert!(text.ends_with("No source works: only probes can find a fault.\n"));
}
