//! An object with a fault is refused, and the text says which.

use super::*;

const EXIT: Instruction = Instruction { opcode: 0x95, destination: 0, source: 0, offset: 0, immediate: 0 };

fn call(source: u8, immediate: i32) -> Instruction {
    Instruction { opcode: CALL, destination: 0, source, offset: 0, immediate }
}

/// `*(u64 *)(r10 + offset) = r1`.
fn store(offset: i16) -> Instruction {
    Instruction { opcode: 0x7b, destination: FRAME, source: 1, offset, immediate: 0 }
}

fn function(name: &str, section: &str, code: &[Instruction], callees: &[Option<usize>]) -> Function {
    let code = [code, &[EXIT]].concat();
    Function { name: name.to_owned(), section: section.to_owned(), code, callees: callees.to_vec() }
}

fn object(functions: Vec<Function>) -> Program {
    Program { sections: SECTIONS.map(str::to_owned).to_vec(), functions }
}

/// One program of this code.
fn program(code: &[Instruction]) -> Program {
    object(vec![function("sys_exit", "raw_tp/sys_exit", code, &[])])
}

fn refusal(object: &Program) -> String {
    check(object).unwrap_err().to_string()
}

#[test]
fn a_good_object_gives_a_row_for_each_program() {
    let callee = function("_RNvNtC1_5names", ".text", &[store(-40), call(CALL_HELPER, 131)], &[]);
    let program = function("sys_exit", "raw_tp/sys_exit", &[store(-8), call(CALL_FUNCTION, 0)], &[Some(1)]);
    let rows = check(&object(vec![program, callee])).unwrap();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.instructions, row.frame, row.deepest), (6, 8, 96));
    assert_eq!(row.newest.map(|helper| helper.name), Some("bpf_ringbuf_reserve"));
    assert_eq!(row.chain, "sys_exit 8 → names 40");
}

#[test]
fn the_generic_read_is_refused_also_in_a_function_below() {
    let text = refusal(&program(&[call(CALL_HELPER, GENERIC_READ)]));
    assert!(text.contains("sys_exit calls the generic bpf_probe_read"), "{text}");
    let callee = function("below", ".text", &[call(CALL_HELPER, GENERIC_READ)], &[]);
    let above = function("above", "fexit/x", &[call(CALL_FUNCTION, 0)], &[Some(1)]);
    assert!(refusal(&object(vec![above, callee])).contains("below calls the generic"));
}

#[test]
fn a_helper_or_a_kind_of_call_that_is_not_in_the_table_is_refused() {
    assert!(refusal(&program(&[call(CALL_HELPER, 6)])).contains("helper 6"));
    assert!(refusal(&program(&[call(2, 77)])).contains("kind 2"));
    let lost = object(vec![function("a", "raw_tp/a", &[call(CALL_FUNCTION, 9)], &[None])]);
    assert!(refusal(&lost).contains("not in the object"));
}

#[test]
fn a_helper_that_old_kernels_lack_is_for_the_programs_that_can_be_missed() {
    let find_vma = [call(CALL_HELPER, 180)];
    assert!(check(&object(vec![function("sigbus", "raw_tp/signal_generate", &find_vma, &[])])).is_ok());
    let text = refusal(&program(&find_vma));
    assert!(text.contains("sys_exit calls bpf_find_vma, which kernels before 5.17 do not have"), "{text}");
}

#[test]
fn the_stack_of_a_chain_is_summed_as_the_kernel_does() {
    assert!(check(&program(&[store(-256)])).is_ok());
    assert!(refusal(&program(&[store(-264)])).contains("sys_exit takes 264 bytes of stack"));
    let callee = function("below", ".text", &[store(-120)], &[]);
    let above = |low| function("above", "fexit/x", &[store(low), call(CALL_FUNCTION, 0)], &[Some(1)]);
    assert!(check(&object(vec![above(-128), callee.clone()])).is_ok());
    let text = refusal(&object(vec![above(-136), callee]));
    assert!(text.contains("288 bytes of stack, more than 256: above 136 → below 120"), "{text}");
}

#[test]
fn an_address_into_the_frame_counts_as_an_access() {
    let copied = |immediate| {
        [
            Instruction { opcode: MOVE, destination: 2, source: FRAME, offset: 0, immediate: 0 },
            Instruction { opcode: ADD, destination: 2, source: 0, offset: 0, immediate },
        ]
    };
    assert_eq!(frame(&copied(-72)), 72);
    // The same register with something else in it is no address into the frame.
    let [copy, add] = copied(-72);
    let other = Instruction { opcode: 0xb7, destination: 2, source: 0, offset: 0, immediate: 5 };
    assert_eq!(frame(&[copy, other, add]), 0);
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    let own = function("own", "raw_tp/own", &[call(CALL_FUNCTION, -1)], &[Some(0)]);
    assert!(refusal(&object(vec![own])).contains("own calls itself"));
}

#[test]
fn too_much_code_two_programs_of_one_name_and_missing_sections_are_refused() {
    assert!(refusal(&program(&vec![EXIT; MOST_INSTRUCTIONS])).contains("8001 instructions"));
    let twice = ["fexit/a", "fexit/b"].map(|section| function("same", section, &[], &[])).to_vec();
    assert!(refusal(&object(twice)).contains("two programs have the name same"));
    let bare = Program { sections: Vec::new(), functions: Vec::new() };
    let text = refusal(&bare);
    for wanted in ["no section license", "no section maps", "no section .BTF", "no program"] {
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn mangled_names_are_shortened() {
    assert_eq!(short("_RNvNtNtCsdLOD0ik72p1_10agent_ebpf8programs8sys_exit5names"), "names");
    assert_eq!(short("memset"), "memset");
}
