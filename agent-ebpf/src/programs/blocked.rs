//! The census: every task that waits inside a system call on a tracked superblock. Runs only while the agent reads
//! it, and touches nothing of a task that could wait: no lock, no memory of the process.
//!
//! Both kinds of sleep count: callers of a frozen FUSE daemon, and of a hard CIFS mount whose server died, sleep
//! where signals reach them. That the same call still waits at the next census is for the agent to find out.
//!
//! While the kernel walks a name, where it has come to is known whatever the call: `mount`, `umount`,
//! `inotify_add_watch` on a dead mount are seen as well.
//!
//! Not seen: page faults and `msync` (no structure within reach names the file), `close` (its descriptor is free by
//! then), calls of 32-bit programs, io_uring.

use agent_common::record::{BlockedRecord, SLEEPS, SLEEPS_DEEP, Who};
use agent_common::settings::{NO_ARGUMENT, SyscallRow, kind, op, task_flag};
use aya_ebpf::bindings::{seq_file, task_struct};
use aya_ebpf::helpers::generated::{bpf_seq_write, bpf_task_pt_regs};

use crate::kernel_struct::{self, Address, argument, follow, read};
use crate::locate::{self, AT_FDCWD};
use crate::maps::{BLOCKED_RECORD, SYSCALLS, offset};
use crate::task;

/// kernel: `struct bpf_iter_meta`, include/linux/bpf.h, since 5.8.
#[repr(C)]
pub struct Meta {
    seq: *mut seq_file,
}

/// kernel: `struct bpf_iter__task`, kernel/bpf/task_iter.c, since 5.8.
#[repr(C)]
pub struct TaskContext {
    meta: *mut Meta,
    task: *mut task_struct,
}

/// kernel: `bpf_iter_task`, kernel/bpf/task_iter.c, since 5.8; `bpf_task_pt_regs`, kernel/trace/bpf_trace.c, since 5.15.
#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task")]
pub extern "C" fn blocked_tasks(ctx: *mut TaskContext) -> i32 {
    // SAFETY: the verifier knows the fields of this context. The task is null after the last one.
    let (task, seq) = unsafe { ((*ctx).task, (*(*ctx).meta).seq) };
    if task.is_null() {
        return 0;
    }
    // SAFETY: an address within the context; nothing is read here.
    let place = unsafe { &raw const (*ctx).task } as Address;
    // As a number: offsets are added to it that the verifier cannot know.
    if let Some(address) = read::<u64>(place, 0)
        && let Some(state) = sleeps(address)
    {
        // SAFETY: the verifier has seen that the task is not null.
        let regs = unsafe { bpf_task_pt_regs(task) } as Address;
        if let Some(record) = empty_record() {
            record.state = state;
            if look(address, regs, record).is_some() {
                // SAFETY: a record of this size; what finds no room is written again by the kernel.
                unsafe { bpf_seq_write(seq, (&raw const *record).cast(), size_of::<BlockedRecord>() as u32) };
            }
        }
    }
    0
}

/// The scratch row of this processor, all zeros.
#[inline(always)]
fn empty_record() -> Option<&'static mut BlockedRecord> {
    let row = BLOCKED_RECORD.get_ptr_mut(locate::scratch_row())?;
    let words: *mut u64 = row.cast();
    for word in 0..size_of::<BlockedRecord>() / 8 {
        // SAFETY: within the row, which is aligned to eight. Volatile, because this would become a call of a function
        // that writes bytes one by one.
        unsafe { core::ptr::write_volatile(words.add(word), 0) };
    }
    // SAFETY: a checked pointer to this processor's own row. Its thread is the reader, and the agent has one.
    Some(unsafe { &mut *row })
}

/// How the task sleeps; `None` for one that runs, is stopped, or is no program's.
///
/// kernel: `TASK_INTERRUPTIBLE` (1) and `TASK_UNINTERRUPTIBLE` (2), include/linux/sched.h, all versions.
#[inline(always)]
fn sleeps(task: Address) -> Option<u32> {
    let state = read::<u32>(task, offset!(task_state))? & (SLEEPS | SLEEPS_DEEP);
    if state == 0 || read::<u32>(task, offset!(task_flags))? & task_flag::NO_PROGRAM != 0 {
        return None;
    }
    Some(if state & SLEEPS_DEEP != 0 { SLEEPS_DEEP } else { SLEEPS })
}

/// Fills the record; `None` when the call is none that waits for a tracked file system.
#[inline(always)]
fn look(task: Address, regs: Address, record: &mut BlockedRecord) -> Option<()> {
    record.syscall = read::<u32>(regs, offset!(regs_number))?;
    // Numbers, 0 for none: options that are kept meanwhile are read from the stack also where there are none.
    let walk = follow(task, offset!(task_nameidata)).unwrap_or(0);
    let row = match SYSCALLS.get(record.syscall) {
        // Waiting in `flock` or `ioctl` is normal.
        Some(row) if row.op != op::OTHER => *row,
        _ => NO_ROW,
    };
    if (row.kind == kind::NONE && walk == 0) || task::is_compat(task) || task::is_agent(task) {
        return None;
    }
    by_walk(walk, record);
    if record.s_dev == 0 {
        match row.kind {
            kind::DESCRIPTOR => {
                (record.s_dev, record.root_ino) = by_descriptors(task, regs, &row, record.state)?;
            }
            kind::NAME if walk == 0 => by_names(task, regs, &row, record),
            // A walk elsewhere; and what functions inside the call note, they note at its end.
            _ => return None,
        }
    }
    describe(task, regs, record)
}

/// Of a call that is not in the table.
const NO_ROW: SyscallRow = SyscallRow {
    kind: kind::NONE,
    op: op::OTHER,
    first: NO_ARGUMENT,
    first_name: NO_ARGUMENT,
    second: NO_ARGUMENT,
    second_name: NO_ARGUMENT,
    second_op: op::OTHER,
    reserved: 0,
};

/// The mount of the first descriptor, or of the second. Where signals end the wait both must be files: who copies into
/// a pipe or a socket waits for its reader. Nobody waits for a reader where they do not.
#[inline(always)]
fn by_descriptors(task: Address, regs: Address, row: &SyscallRow, state: u32) -> Option<(u32, u64)> {
    let (first, second) = (file(task, regs, row.first), file(task, regs, row.second));
    if state == SLEEPS && (first == 0 || (second == 0 && row.second != NO_ARGUMENT)) {
        return None;
    }
    match at(first) {
        Some(place) => Some(place),
        None => at(second),
    }
}

/// The open file behind a descriptor, 0 when that is no regular file or directory.
#[inline(always)]
fn file(task: Address, regs: Address, number: u8) -> Address {
    let file = argument(regs, number).and_then(|value| kernel_struct::file_of_descriptor(task, value as u32));
    let is_file = |file: &Address| kernel_struct::is_file_or_directory(kernel_struct::path_of_file(*file));
    file.filter(|file| is_file(file) == Some(true)).unwrap_or(0)
}

/// Where an open file is, if that is tracked; address 0: none.
#[inline(always)]
fn at(file: Address) -> Option<(u32, u64)> {
    let (s_dev, root_ino, _) = locate::by_mount(kernel_struct::mount_of_file(file)?)?;
    Some((s_dev, root_ino))
}

/// Where the kernel has come to in the walk of a name, if that is tracked.
#[inline(always)]
fn by_walk(walk: Address, record: &mut BlockedRecord) -> Option<()> {
    if walk == 0 {
        return None;
    }
    let path = walk.wrapping_add(u64::from(offset!(nameidata_path)));
    if kernel_struct::is_file_or_directory(path)? {
        (record.s_dev, record.root_ino, _) = locate::by_mount(follow(path, offset!(path_mnt))?)?;
    }
    Some(())
}

/// The directory that the name starts from; the agent looks at the text.
#[inline(always)]
fn by_names(task: Address, regs: Address, row: &SyscallRow, record: &mut BlockedRecord) {
    let descriptor = match row.first {
        NO_ARGUMENT => AT_FDCWD,
        number => argument(regs, number).map_or(AT_FDCWD, |value| value as i32),
    };
    let base = if descriptor == AT_FDCWD {
        kernel_struct::mount_of_cwd(task)
    } else {
        kernel_struct::file_of_descriptor(task, descriptor as u32).and_then(kernel_struct::mount_of_file)
    };
    (record.s_dev, record.root_ino, _) = base.and_then(locate::by_mount).unwrap_or((0, 0, 0));
    record.by_text = 1;
}

/// Who it is, and by what the same call is known again.
#[inline(always)]
fn describe(task: Address, regs: Address, record: &mut BlockedRecord) -> Option<()> {
    let reader = follow(task::current(), offset!(task_thread_pid))?;
    let level = read::<u32>(reader, offset!(pid_level))?;
    let leader = follow(task, offset!(task_group_leader))?;
    record.who = Who {
        cgroup: kernel_struct::cgroup(task).unwrap_or(0),
        pid: kernel_struct::number_of_pid(follow(task, offset!(task_thread_pid))?, level)?,
        tgid: kernel_struct::number_of_pid(follow(leader, offset!(task_thread_pid))?, level)?,
        mnt_ns: kernel_struct::mount_namespace(task).unwrap_or(0),
        reserved: 0,
        comm: read(task, offset!(task_comm))?,
    };
    for number in 0..6u8 {
        record.arguments[usize::from(number)] = argument(regs, number)?;
    }
    record.started = read(task, offset!(task_start_boottime))?;
    let switches = (read::<u64>(task, offset!(task_nvcsw))?, read::<u64>(task, offset!(task_nivcsw))?);
    record.switches = switches.0.wrapping_add(switches.1);
    if offset!(task_reads) != 0 {
        let calls = (read::<u64>(task, offset!(task_reads))?, read::<u64>(task, offset!(task_writes))?);
        record.calls = calls.0.wrapping_add(calls.1);
    }
    Some(())
}
