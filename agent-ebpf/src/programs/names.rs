//! Calls on names, and on two files: where each was, as well as the kernel side can tell, then count or send.
//!
//! Who fails on two files is told by nothing which of them it was. Where both are of one mount that is all the same.
//! Else each that is tracked gets a hint that proves nothing (`op::EITHER`): neither may be condemned for the other.
//!
//! kernel: `do_renameat2`, `do_linkat`, fs/namei.c: both names are walked before the call says that they lie on
//! different mounts, all versions.

use agent_common::key::CounterKey;
use agent_common::record::part;
use agent_common::settings::{NO_ARGUMENT, SyscallRow, op};

use crate::kernel_struct::{self, Address, argument};
use crate::locate::{self, Failure, Name, Placed};
use crate::maps::{self, SPOTS};
use crate::programs::calls;
use crate::shape::{self, Shape};
use crate::{count, emit};

/// A place, as far as it is known. `s_dev` 0: on nothing that is tracked.
#[repr(C)]
pub struct Spot {
    pub root_ino: u64,
    pub s_dev: u32,
    /// Bytes of the name in the scratch row, and [`UNKNOWN`]. 0 where no name was walked: an open file, or an empty name.
    name: u32,
    /// What that name looks like.
    shape: u32,
    /// Never read.
    reserved: u32,
}

/// Of this name only the agent can tell. `s_dev` is that of the directory it starts from.
const UNKNOWN: u32 = 1 << 31;

impl Spot {
    /// Volatile, because this would become a call of a function that writes bytes one by one.
    #[inline(always)]
    fn clear(&mut self) {
        // SAFETY: references are valid pointers.
        unsafe {
            core::ptr::write_volatile(&raw mut self.root_ino, 0);
            core::ptr::write_volatile(&raw mut self.s_dev, 0);
            core::ptr::write_volatile(&raw mut self.name, 0);
        }
    }

    #[inline(always)]
    pub fn is_known(&self) -> bool {
        self.name & UNKNOWN == 0
    }
}

/// Writes a number down and reads it again: the verifier would go on once for each that it has seen.
#[inline(always)]
fn keep(place: &mut u32, number: u32) -> u32 {
    // SAFETY: a reference is a valid pointer.
    unsafe {
        core::ptr::write_volatile(place, number);
        core::ptr::read_volatile(place)
    }
}

/// The spots for a call of the current thread.
#[inline(always)]
pub fn spots() -> Option<&'static mut [Spot; 2]> {
    // SAFETY: a checked pointer to this processor's own row. Two threads that share rows (`scratch_row`), of which one
    // preempts the other just here, may mix their places: such a count is a hint at the wrong volume, as with names.
    SPOTS.get_ptr_mut(locate::scratch_row()).map(|spots| unsafe { &mut *spots })
}

/// Looks where a name leads. A function of its own: inlined once for each name it would double the program.
#[inline(never)]
pub fn glance(failure: &Failure, regs: Address, dir: u8, name: u8, spot: &mut Spot) {
    spot.clear();
    let (Some(dir), Some(text), Some(key)) = (directory(regs, dir), argument(regs, name), locate::scratch())
    else {
        return;
    };
    let Some(len) = locate::copy(text, key) else { return };
    let len = keep(&mut spot.name, len);
    let shape = Shape(keep(&mut spot.shape, shape::look(locate::words(key))));
    match locate::by_name(failure, dir, &Name { key, len, shape }) {
        Some(Placed::At(s_dev, root_ino)) => (spot.s_dev, spot.root_ino) = (s_dev, root_ino),
        Some(Placed::Unknown(base_dev)) => (spot.s_dev, spot.name) = (base_dev, len | UNKNOWN),
        Some(Placed::Elsewhere) | None => {}
    }
}

/// What a name is relative to.
#[inline(always)]
fn directory(regs: Address, dir: u8) -> Option<i32> {
    match dir {
        NO_ARGUMENT => Some(locate::AT_FDCWD),
        number => argument(regs, number).map(|value| value as i32),
    }
}

/// A call on names: counts it, or hands them to the agent.
#[inline(always)]
pub fn by_names(failure: &Failure, regs: Address, row: &SyscallRow) {
    if row.second_name == NO_ARGUMENT {
        one(failure, regs, row);
    } else {
        two(failure, regs, row);
    }
}

#[inline(always)]
fn one(failure: &Failure, regs: Address, row: &SyscallRow) {
    let Some([spot, _]) = spots() else { return };
    glance(failure, regs, row.first, row.first_name, spot);
    if spot.is_known() {
        count_at(failure, spot, failure.op);
    } else if maps::is_hard(failure.errno) && emit::may_send_names() {
        send(failure, regs, row.first, spot, part::ALONE);
    }
}

/// Where one of the two is for the agent to place it gets both, since only both together say whether it was one mount.
#[inline(always)]
fn two(failure: &Failure, regs: Address, row: &SyscallRow) {
    let Some([first, second]) = spots() else { return };
    // The second first: both take one row of scratch, and the first is sent from there.
    glance(failure, regs, row.second, row.second_name, second);
    glance(failure, regs, row.first, row.first_name, first);
    if first.is_known() && second.is_known() {
        count_pair(failure, first, second);
        return;
    }
    if !maps::is_hard(failure.errno) || !emit::may_send_names() {
        known_alone(failure, first);
        known_alone(failure, second);
        return;
    }
    send(failure, regs, row.first, first, part::FIRST);
    glance(failure, regs, row.second, row.second_name, second);
    send(failure, regs, row.second, second, part::SECOND);
}

#[inline(always)]
fn known_alone(failure: &Failure, spot: &Spot) {
    if spot.is_known() {
        count_at(failure, spot, op::EITHER);
    }
}

#[inline(always)]
fn count_pair(failure: &Failure, first: &Spot, second: &Spot) {
    if (first.s_dev, first.root_ino) == (second.s_dev, second.root_ino) {
        count_at(failure, first, failure.op);
    } else {
        count_at(failure, first, op::EITHER);
        count_at(failure, second, op::EITHER);
    }
}

/// Whether it was on something tracked. A function of its own: the stack of the others is small.
#[inline(never)]
fn count_at(failure: &Failure, spot: &Spot, op: u8) -> bool {
    if spot.s_dev == 0 {
        return false;
    }
    let (root_ino, s_dev, by_name) = (spot.root_ino, spot.s_dev, u8::from(spot.name != 0));
    count::add(&CounterKey { root_ino, s_dev, errno: failure.errno, op, by_name }, failure.task);
    true
}

#[inline(never)]
fn send(failure: &Failure, regs: Address, dir: u8, spot: &Spot, part: u8) {
    if let (Some(dir), Some(key)) = (directory(regs, dir), locate::scratch()) {
        emit::name(failure, &emit::Name { dir, len: spot.name & !UNKNOWN, base_dev: spot.s_dev, part }, key);
    }
}

/// A call on one descriptor or two; whether one of them is tracked. Of two mounts neither can be blamed. Of one that
/// is tracked and something else the tracked one is, unless that is a socket, which has errors of its own.
#[inline(always)]
pub fn descriptors(failure: &Failure, regs: Address, row: &SyscallRow) -> bool {
    if row.second == NO_ARGUMENT {
        return calls::on_file(failure, opened(failure.task, regs, row.first));
    }
    let (file, other) = (opened(failure.task, regs, row.first), opened(failure.task, regs, row.second));
    let Some([first, second]) = spots() else { return false };
    place(file, row.op, first);
    place(other, row.second_op, second);
    if first.s_dev != 0 && second.s_dev != 0 {
        count_pair(failure, first, second);
        return true;
    }
    let is_socket = kernel_struct::is_socket;
    let doubtful = maps::is_of_sockets(failure.errno) && (is_socket(file) || is_socket(other));
    let op = |own: u8| if doubtful { op::EITHER } else { own };
    count_at(failure, first, op(row.op)) || count_at(failure, second, op(row.second_op))
}

/// The open file behind a descriptor, 0 when there is none.
#[inline(never)]
fn opened(task: Address, regs: Address, number: u8) -> Address {
    let file = argument(regs, number).and_then(|value| kernel_struct::file_of_descriptor(task, value as u32));
    file.unwrap_or(0)
}

/// Where an open file is; address 0: none.
#[inline(never)]
fn place(file: Address, op: u8, spot: &mut Spot) {
    spot.clear();
    if calls::is_answered_elsewhere(op, file) {
        return;
    }
    if let Some((s_dev, root_ino, _)) = kernel_struct::mount_of_file(file).and_then(locate::by_mount) {
        (spot.s_dev, spot.root_ino) = (s_dev, root_ino);
    }
}
