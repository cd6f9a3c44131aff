//! mountie: a watchdog for mounts. Reads the arguments, runs what they ask for, ends with its code.

use std::process::ExitCode;

use agent::{app, cli};

fn main() -> ExitCode {
    if let Some(code) = app::completions::answer() {
        return code.into();
    }
    let cli = match cli::parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and usage go where clap sends them; a closed pipe is no fault.
            let _ = error.print();
            return cli::exit_code(&error).into();
        }
    };
    app::command::run(cli).into()
}
