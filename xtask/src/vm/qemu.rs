//! The command line of the emulator.

use std::path::Path;
use std::process::Command;

/// The kernel's command line: quick to boot, all security modules that programs may hook, and a panic ends it.
const KERNEL: &str = "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr tsc=reliable no_timer_check \
                      init_on_alloc=0 audit=0 apparmor=0 selinux=0 random.trust_cpu=on cryptomgr.notests=1 nowatchdog \
                      rcupdate.rcu_cpu_stall_suppress=1 lsm=landlock,lockdown,yama,integrity,bpf";

/// The hardware of a guest, and how it is emulated.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Memory in MiB; the guest's temporary files are in it.
    pub(crate) memory: u32,
    /// Processors. Two guests with one each do more than one guest with two.
    pub(crate) processors: u32,
    /// The accelerator and its options. Never `kvm`: some hosts offer one that dies in distribution kernels.
    pub(crate) accelerator: String,
    /// More words for the emulator, as `-icount shift=0,sleep=off` for a clock that counts instructions.
    pub(crate) more: Vec<String>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { memory: 1024, processors: 1, accelerator: "tcg,thread=multi".to_owned(), more: Vec::new() }
    }
}

/// The files of one guest.
#[derive(Debug)]
pub(crate) struct Files<'a> {
    /// The kernel, as ELF.
    pub(crate) kernel: &'a Path,
    /// The archive with process 1.
    pub(crate) initramfs: &'a Path,
    /// The first disk.
    pub(crate) root: &'a Path,
    /// The second disk.
    pub(crate) modules: &'a Path,
    /// The folder that the guest may write.
    pub(crate) work: &'a Path,
    /// The folder that the guest may read.
    pub(crate) share: &'a Path,
    /// Where the kernel's messages go.
    pub(crate) console: &'a Path,
}

/// The emulator, about to be started. It must be given a standard input that stays open: at its end the emulator
/// takes the port for closed, and what the guest writes to it blocks for ever. It ends when whoever started it
/// does.
pub(crate) fn command(machine: &Machine, files: &Files<'_>) -> Command {
    let mut qemu = Command::new("setpriv");
    qemu.args(["--pdeathsig", "KILL", "qemu-system-x86_64", "-machine", "q35", "-cpu", "max"]);
    qemu.arg("-accel").arg(&machine.accelerator);
    qemu.args(["-m", &machine.memory.to_string(), "-smp", &machine.processors.to_string()]);
    qemu.args(["-nodefaults", "-display", "none", "-no-reboot", "-append", KERNEL]);
    qemu.arg("-kernel").arg(files.kernel).arg("-initrd").arg(files.initramfs);
    for (id, disk) in [("root", files.root), ("modules", files.modules)] {
        qemu.arg("-drive").arg(format!("file={},format=raw,if=none,id={id},readonly=on", escape(disk)));
        qemu.args(["-device", &format!("virtio-blk-pci,drive={id}")]);
    }
    qemu.arg("-serial").arg(format!("file:{}", files.console.display()));
    qemu.args(["-device", "virtio-serial-pci", "-chardev", "stdio,id=output,signal=off"]);
    qemu.args(["-device", "virtserialport,chardev=output,name=output"]);
    for (tag, folder, access) in [("work", files.work, ""), ("host", files.share, ",readonly=on")] {
        let path = escape(folder);
        qemu.arg("-virtfs")
            .arg(format!("local,path={path},mount_tag={tag},security_model=none,multidevs=remap{access}"));
    }
    qemu.args(&machine.more);
    qemu
}

/// A path inside of a list of options: a comma is doubled.
fn escape(path: &Path) -> String {
    path.display().to_string().replace(',', ",,")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_a_machine_reach_the_emulator() {
        let at = Path::new("/a,b");
        let files =
            Files { kernel: at, initramfs: at, root: at, modules: at, work: at, share: at, console: at };
        let more = ["-icount".to_owned(), "shift=0".to_owned()].to_vec();
        let machine =
            Machine { memory: 77, accelerator: "tcg,thread=single".to_owned(), more, ..Machine::default() };
        let command = command(&machine, &files);
        let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
        let has = |pair: [&str; 2]| words.windows(2).any(|two| two == pair);
        assert!(has(["-m", "77"]) && has(["-accel", "tcg,thread=single"]) && has(["-icount", "shift=0"]));
        assert!(has(["-kernel", "/a,b"]));
        assert!(words.iter().any(|word| word.starts_with("file=/a,,b,format=raw")));
    }
}
