//! Which program fits which function, and that the table knows every call.

use std::collections::BTreeSet;

use super::*;
use crate::kernel::btf::VMLINUX;
use crate::sensor::ebpf::programs::PROGRAMS;
use crate::sensor::ebpf::syscalls;

fn function(parameters: &[&str]) -> Function {
    let parameters = parameters.iter().map(|name| (*name).to_owned()).collect();
    Function { prototype: 1, parameters, returns_pointer: false }
}

#[test]
fn the_program_follows_the_argument() {
    let old = function(&["inode", "dentry", ""]);
    assert_eq!(fitting(&old, "dentry").as_deref(), Some("dentry_1_3"));
    let new = function(&["mnt_idmap", "inode", "dentry", "", "delegated_inode"]);
    assert_eq!(fitting(&new, "dentry").as_deref(), Some("dentry_2_5"));
    assert_eq!(fitting(&new, "path"), None);
    let pointer = Function { returns_pointer: true, ..new };
    assert_eq!(fitting(&pointer, "dentry").as_deref(), Some("dentry_2_5_pointer"));
}

#[test]
fn every_system_call_of_the_table_has_one_hook() {
    let calls = PROGRAMS.iter().filter(|row| row.attachment == Attachment::CallExit);
    let hooks: BTreeSet<_> = calls.clone().map(|row| row.hook).collect();
    assert_eq!(hooks.len(), calls.count(), "a hook stands twice");
    // `read`, `pread64`, `write` and `pwrite64` end in `vfs_read` and `vfs_write`.
    assert_eq!(hooks.len() + 4, syscalls::rows().count());
}

#[test]
fn this_kernel_has_every_hook_or_the_reason_is_known() {
    let Ok(types) = KernelTypes::open(std::path::Path::new(VMLINUX)) else {
        eprintln!("skipped: no type information here");
        return;
    };
    let object = crate::sensor::ebpf::loader::OBJECT;
    let trampolines = Trampolines::new(types);
    for row in PROGRAMS {
        let Ok(function) = trampolines.types.function(row.hook) else { continue };
        match row.attachment {
            Attachment::PlaceExit(structure) => {
                let program = fitting(&function, structure).unwrap();
                let found = object.windows(program.len()).any(|part| part == program.as_bytes());
                assert!(found || object.is_empty(), "{}: no program {program}", row.name);
            }
            Attachment::CallExit => assert_eq!(function.parameters, ["pt_regs"], "{}", row.name),
            Attachment::RawTracepoint
            | Attachment::FunctionExit
            | Attachment::FunctionEntry
            | Attachment::RunOnce
            | Attachment::Iterator => {}
        }
    }
}
