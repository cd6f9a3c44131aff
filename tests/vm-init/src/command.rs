//! The one command: what the host wants run, with its output on a port of its own.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::wait::{WaitStatus, wait};

use crate::system::{self, WORK};

/// Where programs are.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The port that carries the command's output, by the name that the host gave it.
const OUTPUT: &str = "output";

/// What every command finds in its environment. No udev runs here: dmsetup(8) makes its nodes itself then.
const ENVIRONMENT: &[(&str, &str)] =
    &[("PATH", PATH), ("HOME", "/root"), ("LANG", "C"), ("TERM", "dumb"), ("DM_DISABLE_UDEV", "1")];

/// Code of a program that cannot be started, as shells have it.
const CANNOT_START: i32 = 127;

/// Loads the modules that are asked for, runs the command, and writes its exit code.
///
/// # Errors
/// When the request cannot be read or the code cannot be written.
pub(crate) fn run() -> Result<()> {
    let modules = strings("modules")?;
    if !modules.is_empty() {
        let names: Vec<&str> = ["-a"].into_iter().chain(modules.iter().map(String::as_str)).collect();
        // A kernel may lack one of them; the command says what it misses.
        if let Err(error) = system::must("modprobe", &names) {
            eprintln!("vm-init: {error:#}");
        }
    }
    let code = start_and_wait()?;
    let path = Path::new(WORK).join("exit");
    let mut file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    writeln!(file, "{code}").with_context(|| format!("cannot write {}", path.display()))?;
    file.sync_all().with_context(|| format!("cannot write {}", path.display()))
}

fn start_and_wait() -> Result<i32> {
    let arguments = strings("arguments")?;
    let Some((program, arguments)) = arguments.split_first() else { bail!("there is no command") };
    let output = output_port()?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(ENVIRONMENT.iter().copied()).current_dir("/tmp");
    for pair in strings("environment")? {
        if let Some((key, value)) = pair.split_once('=') {
            command.env(key, value);
        }
    }
    let errors = output.try_clone().context("cannot duplicate the port")?;
    command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(errors);
    match command.spawn() {
        Ok(child) => wait_for(child.id()),
        Err(error) => {
            let mut output = output;
            let _ = writeln!(output, "cannot start {program}: {error}");
            Ok(CANNOT_START)
        }
    }
}

/// Buries every orphan until the command ends; a signal counts as shells count it.
fn wait_for(id: u32) -> Result<i32> {
    loop {
        match wait() {
            Ok(WaitStatus::Exited(ended, code)) if i64::from(ended.as_raw()) == i64::from(id) => {
                return Ok(code);
            }
            Ok(WaitStatus::Signaled(ended, signal, _)) if i64::from(ended.as_raw()) == i64::from(id) => {
                return Ok(128 + signal as i32);
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait for the command"),
        }
    }
}

/// The strings of a request file, each ended by a zero byte; a missing file has none.
fn strings(name: &str) -> Result<Vec<String>> {
    let path = Path::new(WORK).join(name);
    match fs::read(&path) {
        Ok(bytes) => Ok(split(&bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn split(bytes: &[u8]) -> Vec<String> {
    let Some(bytes) = bytes.strip_suffix(b"\0") else { return Vec::new() };
    bytes
        .split(|byte| *byte == 0)
        .map(|word| OsStr::from_bytes(word).to_string_lossy().into_owned())
        .collect()
}

/// The port by its name in sysfs: no udev makes links to it here.
///
/// kernel: `show_port_name`, drivers/char/virtio_console.c, since 2.6.35.
fn output_port() -> Result<File> {
    let ports = fs::read_dir("/sys/class/virtio-ports").context("there are no virtio ports")?;
    for port in ports {
        let port = port.context("cannot list the virtio ports")?;
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == OUTPUT {
            let device: PathBuf = Path::new("/dev").join(port.file_name());
            let opened = OpenOptions::new().write(true).open(&device);
            return opened.with_context(|| format!("cannot open {}", device.display()));
        }
    }
    bail!("no virtio port is named {OUTPUT}")
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn strings_end_with_a_zero_byte_and_may_be_empty() {
        assert_eq!(split(b"a\0b c\0\0"), ["a", "b c", ""]);
        assert!(split(b"").is_empty());
    }
}
