//! Manual pages, made of the definition of the command line: what `--help` says, as man(1) shows it.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::cli::{Cli, ManArgs};
use crate::client::{ClientError, Console};
use crate::exit_code::ExitCode;

/// Commands for administrators.
const SECTION: &str = "8";

/// Prints a page, or writes all.
pub(super) fn run(args: &ManArgs, console: &mut Console<'_>) -> ExitCode {
    let all = definition();
    if let Some(dir) = &args.dir {
        return match write_all(&all, dir) {
            Ok(()) => ExitCode::Ok,
            Err(error) => {
                console.tell(&format_args!("mountie: cannot write to {}: {error}", dir.display()));
                ExitCode::Internal
            }
        };
    }
    let names = args.command.iter().flat_map(|word| word.split_whitespace());
    let Some(command) = find(&all, names) else {
        let asked = args.command.join(" ");
        console.tell(&format_args!("mountie: there is no command `{asked}`; see mountie --help"));
        return ExitCode::Usage;
    };
    let result = page(command)
        .map_err(|source| ClientError::Output { source })
        .and_then(|text| console.print(&text).map(|()| ExitCode::Ok));
    console.end(result)
}

fn definition() -> Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

fn find<'a, 'w>(all: &'a Command, mut names: impl Iterator<Item = &'w str>) -> Option<&'a Command> {
    names
        .try_fold(all, |command, name| command.find_subcommand(name).filter(|command| !command.is_hide_set()))
}

fn write_all(command: &Command, dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join(format!("{}.{SECTION}", name(command))), page(command)?)?;
    command.get_subcommands().filter(|below| !below.is_hide_set()).try_for_each(|below| write_all(below, dir))
}

fn name(command: &Command) -> &str {
    command.get_display_name().unwrap_or_else(|| command.get_name())
}

/// The text of one page.
fn page(command: &Command) -> io::Result<String> {
    let source = format!("mountie {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).section(SECTION).source(source).manual("mountie");
    let mut raw = Vec::new();
    man.render_title(&mut raw)?;
    man.render_name_section(&mut raw)?;
    man.render_synopsis_section(&mut raw)?;
    man.render_description_section(&mut raw)?;
    man.render_options_section(&mut raw)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut raw)?;
    }
    let mut text = String::from_utf8_lossy(&raw).into_owned();
    if let Some(after) = command.get_after_long_help() {
        text.push_str(&sections(&after.to_string()));
    }
    if command.get_name() != "mountie" {
        text.push_str(".SH \"SEE ALSO\"\nmountie(8)\n");
    }
    Ok(text)
}

/// What stands after the options in a help: a heading that ends in a colon, and lines that are set in.
fn sections(help: &str) -> String {
    let mut out = String::new();
    let mut is_open = false;
    for line in help.lines() {
        match line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            Some(heading) => {
                if is_open {
                    out.push_str(".fi\n");
                }
                is_open = true;
                let _ = writeln!(out, ".SH \"{}\"\n.nf", heading.to_uppercase());
            }
            None => {
                let _ = writeln!(out, "{}", verbatim(line));
            }
        }
    }
    if is_open {
        out.push_str(".fi\n");
    }
    out
}

/// A line as it is, whatever it begins with.
fn verbatim(line: &str) -> String {
    let escaped = line.replace('\\', "\\e").replace('-', "\\-");
    if escaped.starts_with(['.', '\'']) { format!("\\&{escaped}") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_what_its_help_says() {
        let dir = tempfile::tempdir().unwrap();
        write_all(&definition(), dir.path()).unwrap();
        let mut pages = 0;
        for entry in fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains(".TH mountie") && text.contains(".SH SYNOPSIS"), "{path:?}: {text}");
            assert!(text.contains(".SH \"EXAMPLES\""), "{path:?}: {text}");
            pages += 1;
        }
        assert!(pages > 17, "{pages}");
        assert!(dir.path().join("mountie-state-show.8").is_file());
        for hidden in ["mountie-worker.8", "mountie-act.8"] {
            assert!(!dir.path().join(hidden).is_file(), "{hidden}");
        }
    }

    #[test]
    fn a_page_is_found_by_the_words_of_its_command() {
        let all = definition();
        let found = |words: &str| find(&all, words.split(' ')).map(name).map(str::to_owned);
        assert_eq!(found("state show").as_deref(), Some("mountie-state-show"));
        assert_eq!(found("nonsense"), None);
        assert_eq!(found("worker"), None);
    }

    #[test]
    fn lines_are_shown_as_they_are() {
        let text = sections("Examples:\n  mountie run --config x\n.x \\y\n\nExit codes:\n  0 ok\n");
        assert_eq!(
            text,
            ".SH \"EXAMPLES\"\n.nf\n  mountie run \\-\\-config x\n\\&.x \\ey\n\n.fi\n.SH \"EXIT CODES\"\n.nf\n  0 ok\n.fi\n"
        );
    }
}
