//! Programs that note where a function has failed. Functions differ between kernels in which argument says where
//! and in how many there are, so a program is named after both, and the agent attaches the one that fits what
//! the running kernel says of the function. One program may hang on several functions. Where the result is a pointer
//! the program is another one, with `_pointer` at the end of its name.
//!
//! kernel: the list of functions and what they are since stands in the agent's table of programs.

use aya_ebpf::EbpfContext as _;
use aya_ebpf::macros::fexit;
use aya_ebpf::programs::FExitContext;

use crate::kernel_struct::{self, Address, follow, read};
use crate::maps::offset;
use crate::note;

/// One program for each pair of place and number of arguments. The return value is the word after them.
macro_rules! notes {
    ($($what:ident: $($name:ident($place:literal, $count:literal))+;)+) => {$($(
        /// kernel: FUNCTION and FILE are those of its rows in the table of programs, since what stands there.
        #[fexit]
        pub fn $name(ctx: FExitContext) -> i32 {
            if let Some(errno) = note::errno_of(ctx.arg($count)) {
                $what(errno, ctx.arg($place));
            }
            0
        }
    )+)+};
}

notes! {
    // `struct file *`
    file: file_0_2(0, 2) file_0_3(0, 3) file_0_4(0, 4) file_0_5(0, 5);
    // `struct path *`
    path: path_0_2(0, 2) path_0_3(0, 3) path_0_4(0, 4) path_0_5(0, 5) path_1_3(1, 3) path_1_4(1, 4)
        path_1_5(1, 5);
    // `struct vfsmount *`
    vfsmount: vfsmount_0_1(0, 1) vfsmount_0_2(0, 2);
    // `struct renamedata *`
    renamedata: renamedata_0_1(0, 1) renamedata_0_2(0, 2);
    // `struct dentry *`
    dentry: dentry_0_2(0, 2) dentry_0_3(0, 3) dentry_0_4(0, 4) dentry_0_5(0, 5) dentry_0_6(0, 6)
        dentry_1_2(1, 2) dentry_1_3(1, 3) dentry_1_4(1, 4) dentry_1_5(1, 5) dentry_1_6(1, 6)
        dentry_2_3(2, 3) dentry_2_4(2, 4) dentry_2_5(2, 5) dentry_2_6(2, 6);
}

/// The same for functions that return a pointer, or an error in the place of one.
macro_rules! notes_of_pointers {
    ($what:ident: $($name:ident($place:literal, $count:literal))+) => {$(
        /// kernel: `vfs_mkdir`, fs/namei.c, since 6.15. The verifier lets nobody calculate with a pointer, so that
        /// it is read from where it lies (`btf_ctx_access`, kernel/bpf/btf.c, since 5.5).
        #[fexit]
        pub fn $name(ctx: FExitContext) -> i32 {
            let returned: Option<u64> = read(ctx.as_ptr() as Address, $count * 8);
            if let Some(errno) = returned.and_then(note::errno_of) {
                $what(errno, ctx.arg($place));
            }
            0
        }
    )+};
}

notes_of_pointers! {
    dentry: dentry_2_4_pointer(2, 4) dentry_2_5_pointer(2, 5)
}

#[inline(always)]
fn file(errno: u16, file: Address) {
    note::on_path(errno, kernel_struct::path_of_file(file));
}

#[inline(always)]
fn path(errno: u16, path: Address) {
    note::on_path(errno, path);
}

#[inline(always)]
fn vfsmount(errno: u16, vfsmount: Address) {
    note::on_mount(errno, Some(vfsmount));
}

#[inline(always)]
fn dentry(errno: u16, dentry: Address) {
    note::on_dentry(errno, dentry);
}

#[inline(always)]
fn renamedata(errno: u16, data: Address) {
    if let Some(dentry) = follow(data, offset!(renamedata_new_dentry)) {
        note::on_dentry(errno, dentry);
    }
}
