//! What must hold for the built object before anybody loads it: the helpers it calls, the stack it takes, the
//! sections it has.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::helpers::{self, GENERIC_READ, Helper};
use super::object::{CALL, CALL_FUNCTION, CALL_HELPER, Function, Instruction, Program};
use super::unwritten;

/// Instructions that one function may have. The verifier takes a million steps; some thousand instructions
/// without loops stay far below.
const MOST_INSTRUCTIONS: usize = 8000;

/// Bytes of stack that one function may take.
const MOST_FRAME: u32 = 256;

/// Bytes that a program and what it calls may take together. The kernel's limit is 512; half is kept free, because
/// compilers differ in what they put on the stack.
const MOST_STACK: u32 = 256;

/// The kernel counts every frame in steps of this.
///
/// kernel: `check_max_stack_depth`, kernel/bpf/verifier.c, since 4.16.
const FRAME_STEP: u32 = 32;

/// Frames that may lie above each other.
///
/// kernel: `MAX_CALL_FRAMES`, include/linux/bpf_verifier.h, since 4.16.
const MOST_FRAMES: usize = 8;

/// Sections without which the loader can do nothing.
const SECTIONS: [&str; 3] = ["license", "maps", ".BTF"];

/// Register 10 points to the end of the frame.
const FRAME: u8 = 10;
/// `r? = r?`, 64 bits.
const MOVE: u8 = 0xbf;
/// `r? += constant`, 64 bits.
const ADD: u8 = 0x07;

/// One program, as the table shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// Its name.
    pub name: String,
    /// Its section.
    pub section: String,
    /// Its own instructions and those of all that it calls.
    pub instructions: usize,
    /// Bytes of its own frame.
    pub frame: u32,
    /// Bytes of the deepest chain of frames.
    pub deepest: u32,
    /// That chain: frames with their names.
    pub chain: String,
    /// The newest helper that it calls: no older kernel takes the program.
    pub newest: Option<&'static Helper>,
}

/// Checks everything and returns a row for each program; an error names everything that is wrong.
pub(super) fn check(object: &Program) -> Result<Vec<Row>> {
    let mut wrong = Vec::new();
    for wanted in SECTIONS {
        if !object.sections.iter().any(|name| name == wanted) {
            wrong.push(format!("there is no section {wanted}"));
        }
    }
    for function in &object.functions {
        wrong.extend(calls(function));
        wrong.extend(unwritten::reads(function).into_iter().map(|(at, place)| {
            let name = &function.name;
            format!("{name}, instruction {at}, reads the stack at {place}, where some way to it writes nothing: kernels before 6.3 refuse it")
        }));
        let own = frame(&function.code);
        if own > MOST_FRAME {
            wrong.push(format!("{} takes {own} bytes of stack, more than {MOST_FRAME}", function.name));
        }
        if function.code.len() > MOST_INSTRUCTIONS {
            let (name, count) = (&function.name, function.code.len());
            wrong.push(format!("{name} has {count} instructions, more than {MOST_INSTRUCTIONS}"));
        }
    }
    let mut rows: Vec<Row> = Vec::new();
    for (index, function) in object.functions.iter().enumerate().filter(|(_, f)| f.is_program()) {
        if rows.iter().any(|row| row.name == function.name) {
            wrong.push(format!("two programs have the name {}", function.name));
        }
        match deepest(object, index, &mut Vec::new()) {
            Ok(chain) => {
                let row = row(object, index, &chain);
                if row.deepest > MOST_STACK {
                    let (name, deepest, chain) = (&row.name, row.deepest, &row.chain);
                    wrong.push(format!(
                        "{name} takes {deepest} bytes of stack, more than {MOST_STACK}: {chain}"
                    ));
                }
                rows.push(row);
            }
            Err(problem) => wrong.push(problem),
        }
    }
    if rows.is_empty() {
        wrong.push("there is no program".to_owned());
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    rows.sort_by(|a, b| a.section.cmp(&b.section));
    Ok(rows)
}

/// What is wrong with the calls of a function.
fn calls(function: &Function) -> Vec<String> {
    let name = &function.name;
    let mut wrong: Vec<String> = function
        .code
        .iter()
        .filter(|instruction| instruction.opcode == CALL)
        .filter_map(|call| match (call.source, call.immediate) {
            (CALL_HELPER, GENERIC_READ) => {
                Some(format!("{name} calls the generic bpf_probe_read, which not every architecture has"))
            }
            (CALL_HELPER, number) => match helpers::find(number) {
                None => Some(format!("{name} calls helper {number}, which is not in the table of helpers")),
                Some(helper) if !helper.is_for(name) => {
                    let (helper, (major, minor)) = (helper.name, helper.since);
                    Some(format!("{name} calls {helper}, which kernels before {major}.{minor} do not have"))
                }
                Some(_) => None,
            },
            (CALL_FUNCTION, _) => None,
            (kind, _) => Some(format!("{name} has a call of kind {kind}: not every kernel takes it")),
        })
        .collect();
    if function.callees.contains(&None) {
        wrong.push(format!("{name} calls a function that is not in the object"));
    }
    wrong.sort();
    wrong.dedup();
    wrong
}

/// Bytes of the frame: the lowest access through the frame's register, or through a copy that was moved down.
/// What the compiler makes adds the constant right after the copy, so the code is read from top to bottom.
fn frame(code: &[Instruction]) -> u32 {
    let mut copies = BTreeSet::new();
    let mut lowest = 0i32;
    for instruction in code {
        let Instruction { opcode, destination, source, offset, immediate } = *instruction;
        if opcode == MOVE && source == FRAME {
            copies.insert(destination);
            continue;
        }
        let memory = match opcode & 7 {
            // Loads have the address in the source, stores in the destination.
            1 => source == FRAME,
            2 | 3 => destination == FRAME,
            _ => false,
        };
        if memory {
            lowest = lowest.min(i32::from(offset));
        } else if opcode == ADD && copies.contains(&destination) {
            lowest = lowest.min(immediate);
        }
        copies.remove(&destination);
    }
    lowest.unsigned_abs()
}

/// What the kernel counts for a frame.
fn counted(frame: u32) -> u32 {
    frame.max(1).next_multiple_of(FRAME_STEP)
}

/// The chain of calls that takes most stack, from this function down.
fn deepest(object: &Program, index: usize, above: &mut Vec<usize>) -> Result<Vec<usize>, String> {
    let Some(function) = object.functions.get(index) else { return Ok(Vec::new()) };
    if above.contains(&index) {
        return Err(format!("{} calls itself", function.name));
    }
    above.push(index);
    if above.len() > MOST_FRAMES {
        return Err(format!("more than {MOST_FRAMES} frames lie above each other in {}", function.name));
    }
    let mut worst = Vec::new();
    for callee in function.callees.iter().flatten() {
        let chain = deepest(object, *callee, above)?;
        if stack(object, &chain) > stack(object, &worst) {
            worst = chain;
        }
    }
    above.pop();
    worst.insert(0, index);
    Ok(worst)
}

fn stack(object: &Program, chain: &[usize]) -> u32 {
    chain.iter().filter_map(|index| object.functions.get(*index)).map(|f| counted(frame(&f.code))).sum()
}

fn row(object: &Program, index: usize, chain: &[usize]) -> Row {
    let all = reachable(object, index);
    let functions = || all.iter().filter_map(|index| object.functions.get(*index));
    let numbers = functions()
        .flat_map(|function| &function.code)
        .filter(|instruction| instruction.opcode == CALL && instruction.source == CALL_HELPER);
    let newest = numbers.filter_map(|call| helpers::find(call.immediate)).max_by_key(|helper| helper.since);
    let links = chain.iter().filter_map(|index| object.functions.get(*index));
    let chain_text: Vec<String> =
        links.map(|function| format!("{} {}", short(&function.name), frame(&function.code))).collect();
    let own = object.functions.get(index);
    Row {
        name: own.map(|function| function.name.clone()).unwrap_or_default(),
        section: own.map(|function| function.section.clone()).unwrap_or_default(),
        instructions: functions().map(|function| function.code.len()).sum(),
        frame: own.map_or(0, |function| frame(&function.code)),
        deepest: stack(object, chain),
        chain: chain_text.join(" → "),
        newest,
    }
}

/// A function and all that it calls.
fn reachable(object: &Program, index: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    let mut next = vec![index];
    while let Some(index) = next.pop() {
        if found.insert(index) {
            next.extend(object.functions.get(index).into_iter().flat_map(|f| f.callees.iter().flatten()));
        }
    }
    found
}

/// A mangled name's last part: `_RNv…8sys_exit5names` is `names`.
pub(super) fn short(name: &str) -> &str {
    if !name.starts_with("_R") {
        return name;
    }
    let Some(last) = name.rfind(|c: char| c.is_ascii_digit()) else { return name };
    name.get(last.saturating_add(1)..).filter(|rest| !rest.is_empty()).unwrap_or(name)
}

#[cfg(test)]
mod tests;
