//! The integration tests: the table of cases and the programs of the bench, in one binary, so that it can be
//! copied to another machine as it is.
#![deny(unsafe_code)]

mod cases;
mod faults;
mod io;
mod refusals;
mod shows;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use integration_tests::harness::runner::Processes;
use integration_tests::harness::{fleet, fuse_fs, reader, runner, watcher, without_bpf};

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (first, rest) = match arguments.split_first() {
        Some((first, rest)) => (first.to_str().unwrap_or_default(), rest),
        None => ("", [].as_slice()),
    };
    match (first, rest) {
        (fuse_fs::FLAG, rest) => fuse_fs::main(rest),
        (fleet::FLAG, rest) => fleet::main(rest),
        (reader::FLAG, rest) => reader::main(rest),
        (watcher::FLAG, rest) => watcher::main(rest),
        (without_bpf::FLAG, rest) => without_bpf::main(rest),
        (io::FLAG, rest) => io::main(rest),
        (io::TOUCH, rest) => io::touch(rest),
        (runner::SHOW, [name]) => runner::run_shown(shows::SHOWS, &name.to_string_lossy()),
        (runner::INIT, [name, directory]) => runner::run_init(name, directory),
        (runner::REAPER, [name, directory]) => runner::run_reaper(name, directory),
        (runner::CASE, [name, directory]) => {
            let all: Vec<_> = cases::with_inner().into_iter().chain(shows::SHOWS.iter().copied()).collect();
            runner::run_case(&all, &name.to_string_lossy(), Path::new(directory))
        }
        _ => {
            let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
            let (chosen, arguments) = runner::vm_parts(words);
            let done = match chosen {
                None => Ok(runner::run_table(cases::table(), Processes::Own, &arguments)),
                Some(parts) if arguments.iter().any(|word| word == runner::PLAN) => {
                    cases::vm_plan(parts.as_deref()).map(|plan| {
                        print!("{plan}");
                        ExitCode::SUCCESS
                    })
                }
                Some(parts) => cases::vm_table(parts.as_deref())
                    .map(|cases| runner::run_table(cases, Processes::Machine, &arguments)),
            };
            done.unwrap_or_else(|error| {
                eprintln!("{error:#}");
                ExitCode::from(64)
            })
        }
    }
}
