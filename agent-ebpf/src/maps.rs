//! Every map, with the reason for its size, and the globals that the agent sets before loading.

use agent_common::key::{CounterKey, CounterValue, NameBytes, NameValue, NameWindow, RootKey};
use agent_common::record::{BlockedRecord, NameRecord};
use agent_common::settings::{self, Filter, LowerDevice, ModuleOffsets, Offsets, SyscallRow, dropped};
use agent_common::subvolume::NameWords;
use aya_ebpf::macros::map;
use aya_ebpf::maps::lpm_trie::Key;
use aya_ebpf::maps::{
    Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, PerCpuHashMap, ProgramArray, RingBuf,
};

use crate::note::Note;
use crate::programs::names::Spot;

/// A volume that is sick shows a handful of (errno, kind) pairs; 1,000 tracked volumes that are all sick need some
/// thousand keys at a time. The agent takes the stalest out before it is full. Costs 192 KiB a processor.
///
/// Preallocated, like every hash here: a raw tracepoint with another one gives a `WARN` with a stack in the
/// kernel's log, and is refused on real-time kernels.
///
/// kernel: `check_map_prog_compatibility`, kernel/bpf/verifier.c, from 5.7 to 6.0.
#[map]
pub static COUNTERS: PerCpuHashMap<CounterKey, CounterValue> =
    PerCpuHashMap::with_max_entries(settings::MAX_COUNTERS, 0);

/// As many superblocks as a node can reasonably watch.
#[map]
pub static TRACKED: HashMap<u32, u32> = HashMap::with_max_entries(settings::MAX_TRACKED, 0);

/// A volume has one root. Without those of others, the counters of a superblock are as many as its volumes have.
#[map]
pub static ROOTS: HashMap<RootKey, u32> = HashMap::with_max_entries(settings::MAX_TRACKED, 0);

/// Mount points of tracked superblocks and the untracked ones below them. A trie is never preallocated.
#[map]
pub static NAMES: LpmTrie<NameBytes, NameValue> = LpmTrie::with_max_entries(settings::MAX_NAMES, 0);

/// One row for every number; numbers above are not watched.
#[map]
pub static SYSCALLS: Array<SyscallRow> = Array::with_max_entries(settings::SYSCALL_ROWS, 0);

/// One row for every operation of io_uring: the kind of operation plus one, 0 for what is not counted.
#[map]
pub static IO_OPERATIONS: Array<u32> = Array::with_max_entries(settings::IO_ROWS, 0);

/// A tracked superblock has a handful of devices below it.
#[map]
pub static LOWER: HashMap<u32, LowerDevice> = HashMap::with_max_entries(settings::MAX_LOWER, 0);

/// Offsets in structures of modules; written before a program that needs them is attached.
#[map]
pub static MODULES: Array<ModuleOffsets> = Array::with_max_entries(1, 0);

/// 256 KiB hold about 2,500 first errors, or 750 names. One counter sends ten records a second on a processor, and
/// a share of the names eight in 100 ms.
#[map]
pub static RECORDS: RingBuf = RingBuf::with_byte_size(256 * 1024, 0);

/// What was lost, by cause.
#[map]
pub static DROPPED: PerCpuArray<u64> = PerCpuArray::with_max_entries(dropped::ROWS, 0);

/// The agent's process id, 0 until it is known.
#[map]
pub static AGENT: Array<u32> = Array::with_max_entries(1, 0);

/// The budget of names of this processor, in shares.
#[map]
pub static WINDOW: PerCpuArray<NameWindow> = PerCpuArray::with_max_entries(settings::NAME_SHARES, 0);

/// Names being looked up: too large for the stack. Costs 4 KiB a processor.
#[map]
pub static NAME_KEY: PerCpuArray<Key<NameBytes>> = PerCpuArray::with_max_entries(settings::SCRATCH_ROWS, 0);

/// Names being sent: too large for the stack. Costs 5 KiB a processor.
#[map]
pub static NAME_RECORD: PerCpuArray<NameRecord> = PerCpuArray::with_max_entries(settings::SCRATCH_ROWS, 0);

/// Where the one or two files of a call are. Not on the stack: there the verifier remembers what each way through
/// the look at one name has found, and walks the look at the other once for each.
#[map]
pub static SPOTS: PerCpuArray<[Spot; 2]> = PerCpuArray::with_max_entries(settings::SCRATCH_ROWS, 0);

/// Names of the roots of subvolumes: too large for the stack. Apart from names being looked up, in the middle of
/// which they are needed. Costs 4 KiB a processor.
#[map]
pub static ROOT_NAME: PerCpuArray<NameWords> = PerCpuArray::with_max_entries(settings::SCRATCH_ROWS, 0);

/// The task that is looked at by the census: too large for the stack. Costs 2.3 KiB a processor.
#[map]
pub static BLOCKED_RECORD: PerCpuArray<BlockedRecord> =
    PerCpuArray::with_max_entries(settings::SCRATCH_ROWS, 0);

/// Where functions inside a call have failed, by thread, until the call ends. Old ones fall out.
#[map]
pub static NOTES: LruHashMap<u64, Note> = LruHashMap::with_max_entries(4096, 0);

/// One program: what counts a system call that failed.
#[map]
pub static FAILED_CALLS: ProgramArray = ProgramArray::with_max_entries(1, 0);

/// Field offsets of the running kernel.
#[unsafe(no_mangle)]
pub static OFFSETS: Offsets = Offsets {
    regs_arguments: [0; 6],
    regs_number: 0,
    task_compat: 0,
    compat_mask: 0,
    task_tgid: 0,
    task_real_parent: 0,
    task_nsproxy: 0,
    task_files: 0,
    task_fs: 0,
    nsproxy_mnt_ns: 0,
    mnt_namespace_inum: 0,
    files_struct_fdt: 0,
    fdtable_max_fds: 0,
    fdtable_fd: 0,
    file_f_path: 0,
    path_mnt: 0,
    path_dentry: 0,
    vfsmount_mnt_root: 0,
    vfsmount_mnt_sb: 0,
    super_block_s_dev: 0,
    dentry_d_inode: 0,
    dentry_d_parent: 0,
    dentry_name: 0,
    inode_i_ino: 0,
    inode_i_sb: 0,
    inode_i_rdev: 0,
    address_space_host: 0,
    fs_struct_pwd: 0,
    fs_struct_root: 0,
    mount_mnt: 0,
    mount_mnt_parent: 0,
    mount_mnt_mountpoint: 0,
    dentry_d_sb: 0,
    renamedata_new_dentry: 0,
    file_f_inode: 0,
    inode_i_size: 0,
    vma_vm_start: 0,
    vma_vm_pgoff: 0,
    vma_vm_file: 0,
    vm_fault_vma: 0,
    vm_fault_flags: 0,
    vm_fault_pgoff: 0,
    task_fault_code: 0,
    fault_store_mask: 0,
    page_shift: 0,
    task_pid: 0,
    task_comm: 0,
    wait_queue_head_head: 0,
    wait_queue_entry_entry: 0,
    wait_queue_entry_private: 0,
    io_kiocb_file: 0,
    io_kiocb_opcode: 0,
    kiocb_ki_filp: 0,
    kiocb_ki_flags: 0,
    request_bio: 0,
    request_cmd_flags: 0,
    request_disk: 0,
    disk_in_queue: 0,
    request_queue_disk: 0,
    gendisk_major: 0,
    gendisk_first_minor: 0,
    bio_bi_bdev: 0,
    block_device_bd_dev: 0,
    request_errno: 0,
    inode_i_mode: 0,
    task_state: 0,
    task_flags: 0,
    task_start_boottime: 0,
    task_nvcsw: 0,
    task_nivcsw: 0,
    task_reads: 0,
    task_writes: 0,
    task_thread_pid: 0,
    task_group_leader: 0,
    task_cgroups: 0,
    task_nameidata: 0,
    pid_level: 0,
    pid_numbers: 0,
    css_set_dfl_cgrp: 0,
    cgroup_kn: 0,
    kernfs_node_id: 0,
    nameidata_path: 0,
};

/// Which errnos count, and where the host's names are.
#[unsafe(no_mangle)]
pub static FILTER: Filter = Filter::EMPTY;

/// Reads one offset. Volatile, because the value in this object is not the one at run time.
macro_rules! offset {
    ($($field:tt)+) => {
        // SAFETY: a read of a static of this object; the verifier checks the bounds of the map behind it.
        unsafe { core::ptr::read_volatile(&raw const $crate::maps::OFFSETS.$($field)+) }
    };
}
pub(crate) use offset;

/// Whether the errno is in the counted list.
#[inline(always)]
pub fn is_counted(errno: u16) -> bool {
    in_bitmap(errno, &raw const FILTER.counted)
}

/// Whether a name with this errno is worth sending.
#[inline(always)]
pub fn is_hard(errno: u16) -> bool {
    in_bitmap(errno, &raw const FILTER.hard)
}

/// Whether a socket answers with this errno as well.
#[inline(always)]
pub fn is_of_sockets(errno: u16) -> bool {
    in_bitmap(errno, &raw const FILTER.of_sockets)
}

/// Inode number of the host's mount namespace.
#[inline(always)]
pub fn host_mnt_ns() -> u32 {
    // SAFETY: as in `offset!`.
    unsafe { core::ptr::read_volatile(&raw const FILTER.host_mnt_ns) }
}

/// By address: a choice between words would make the verifier go on once for each.
#[inline(always)]
fn in_bitmap(errno: u16, bitmap: *const [u64; settings::ERRNO_WORDS]) -> bool {
    let index = usize::from(errno >> 6);
    if index >= settings::ERRNO_WORDS {
        return false;
    }
    // SAFETY: within the bitmap; else as in `offset!`.
    let word = unsafe { core::ptr::read_volatile(bitmap.cast::<u64>().add(index)) };
    (word >> (errno & 63)) & 1 == 1
}
