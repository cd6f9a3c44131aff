//! A distribution's kernel, ready to boot: the ELF image, the modules as a disk, and the few modules of the
//! initramfs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::quietly::quiet;

use super::cache::{Cache, clear};
use super::kernels::{self, Series};
use super::modules;
use super::packages::Suite;
use super::root::make_disk;

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// What people call it.
    pub(crate) name: &'static str,
    /// `uname -r`.
    pub(crate) release: String,
    folder: PathBuf,
}

impl Kernel {
    /// Takes it from the cache, or downloads and unpacks it first.
    pub(crate) fn prepare(series: &'static Series, cache: &Cache) -> Result<Self> {
        let recipe = format!("2 {} {} {}", series.name, series.suite, modules::recipe());
        let folder =
            cache.part(&format!("kernel-{}", series.name), &recipe, |at| make(series, cache.folder(), at))?;
        let release = folder.join("release");
        let release =
            fs::read_to_string(&release).with_context(|| format!("cannot read {}", release.display()))?;
        Ok(Self { name: series.name, release, folder })
    }

    /// The image that QEMU boots.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// The disk with the modules.
    pub(crate) fn modules(&self) -> PathBuf {
        self.folder.join("modules.erofs")
    }

    /// The modules of the initramfs, in the order in which they are loaded.
    pub(crate) fn early(&self) -> Result<Vec<PathBuf>> {
        let folder = self.folder.join("early");
        let order = folder.join("order");
        let names = fs::read_to_string(&order).with_context(|| format!("cannot read {}", order.display()))?;
        Ok(names.lines().map(|name| folder.join(name)).collect())
    }
}

fn make(series: &Series, cache: &Path, at: &Path) -> Result<()> {
    let suite = Suite::fetch(series.suite, cache)?;
    let packages = suite.available("linux-")?;
    let image = kernels::newest(&packages, series.name).with_context(|| {
        format!(
            "{} has no image of {}: name a suite that has one in xtask/src/vm/kernels.rs",
            series.suite, series.name
        )
    })?;
    let release = kernels::release(&image.name).unwrap_or_default();
    let (downloaded, unpacked, base) = (at.join("packages"), at.join("unpacked"), at.join("base"));
    suite.download(&kernels::parts(&packages, image), &downloaded)?;
    for package in fs::read_dir(&downloaded).context("cannot list what was downloaded")? {
        quiet(Command::new("dpkg-deb").arg("-x").arg(package?.path()).arg(&unpacked))?;
    }
    let bzimage = [format!("boot/vmlinuz-{release}"), format!("usr/lib/modules/{release}/vmlinuz")]
        .iter()
        .map(|place| unpacked.join(place))
        .find(|place| place.is_file())
        .with_context(|| format!("the packages of {release} have no kernel image"))?;
    extract(&bzimage, &at.join("vmlinux"))?;
    let kept = modules::select(&unpacked, release, &base)?;
    make_disk(&kept, &at.join("modules.erofs"))?;
    modules::copy_early(&kept, &at.join("early"))?;
    fs::write(at.join("release"), release).context("cannot write the release")?;
    [downloaded, unpacked, base].iter().try_for_each(|folder| clear(folder))
}

/// Takes the ELF kernel out of a bzImage. QEMU boots that directly (PVH), which saves the emulated guest the
/// inflating: some seconds of every boot.
fn extract(bzimage: &Path, vmlinux: &Path) -> Result<()> {
    let image = fs::read(bzimage).with_context(|| format!("cannot read {}", bzimage.display()))?;
    let payload = payload(&image).with_context(|| format!("{} is no bzImage", bzimage.display()))?;
    let Some((program, arguments, packed)) = unpacker(payload) else {
        bail!("{}: unknown compression, it begins with {:02x?}", bzimage.display(), payload.get(..6));
    };
    let packed_file = vmlinux.with_extension("packed");
    fs::write(&packed_file, packed).with_context(|| format!("cannot write {}", packed_file.display()))?;
    let input = File::open(&packed_file).context("cannot open the packed kernel")?;
    let output = File::create(vmlinux).with_context(|| format!("cannot create {}", vmlinux.display()))?;
    let status = Command::new(program)
        .args(arguments)
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::null())
        .status()
        .with_context(|| format!("failed to start {program}"))?;
    clear(&packed_file)?;
    let elf = fs::read(vmlinux).with_context(|| format!("cannot read {}", vmlinux.display()))?;
    if !elf.starts_with(b"\x7fELF") {
        bail!("{program} ended with {status} and made no ELF file of {}", bzimage.display());
    }
    Ok(())
}

/// The packed kernel inside of a bzImage.
///
/// kernel: Documentation/arch/x86/boot.rst, `setup_sects`, `payload_offset`, `payload_length`, since 2.6.26.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes: [u8; 4] = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    if image.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let sectors = match *image.get(0x1F1)? {
        0 => 4,
        sectors => usize::from(sectors),
    };
    let start = ((sectors + 1) * 512).checked_add(number(0x248)?)?;
    image.get(start..start.checked_add(number(0x24C)?)?)
}

/// The program that unpacks it, by the first bytes. Where the format does not end by itself, the kernel's build
/// appends the size in four bytes.
///
/// kernel: `size_append`, scripts/Makefile.lib, since 2.6.30.
fn unpacker(payload: &[u8]) -> Option<(&'static str, &'static [&'static str], &[u8])> {
    let without_size = || payload.get(..payload.len().checked_sub(4)?);
    match payload {
        [0x1F, 0x8B, ..] => Some(("gzip", &["-dc"], payload)),
        [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Some(("xz", &["-dc", "--single-stream"], payload)),
        [0x28, 0xB5, 0x2F, 0xFD, ..] => Some(("zstd", &["-dcq"], without_size()?)),
        [0x02, 0x21, 0x4C, 0x18, ..] => Some(("lz4", &["-dc"], without_size()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bzimage(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512 + 16];
        image[0x1F1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248] = 16;
        image[0x24C] = u8::try_from(payload.len()).unwrap();
        image.extend_from_slice(payload);
        image.extend_from_slice(b"what follows");
        image
    }

    #[test]
    fn the_payload_is_found_by_the_header() {
        assert_eq!(payload(&bzimage(b"kernel")), Some(b"kernel".as_slice()));
        assert_eq!(payload(b"MZ"), None);
        assert_eq!(payload(&vec![0; 4096]), None);
        let mut cut = bzimage(b"kernel");
        cut.truncate(3 * 512 + 18);
        assert_eq!(payload(&cut), None);
    }

    #[test]
    fn the_compression_is_told_by_the_first_bytes() {
        let program = |bytes: &[u8]| unpacker(bytes).map(|(program, _, packed)| (program, packed.len()));
        assert_eq!(program(b"\x1f\x8bxxxx"), Some(("gzip", 6)));
        assert_eq!(program(b"\xfd7zXZ\0x"), Some(("xz", 7)));
        assert_eq!(program(b"\x28\xb5\x2f\xfdxxSIZE"), Some(("zstd", 6)));
        assert_eq!(program(b"\x02\x21\x4c\x18SIZE"), Some(("lz4", 4)));
        assert_eq!(program(b"BZh9"), None);
    }

    #[test]
    fn a_kernel_comes_out_as_it_went_in() {
        let folder = std::env::temp_dir().join(format!("mountie-extract-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let kernel = folder.join("kernel");
        fs::write(&kernel, b"\x7fELF and more").unwrap();
        let packed = Command::new("gzip").arg("-c").arg(&kernel).output().unwrap().stdout;
        let image = folder.join("bzImage");
        fs::write(&image, bzimage(&packed)).unwrap();
        extract(&image, &folder.join("vmlinux")).unwrap();
        assert_eq!(fs::read(folder.join("vmlinux")).unwrap(), b"\x7fELF and more");
        fs::write(&image, bzimage(b"\x1f\x8bgarbage")).unwrap();
        assert!(extract(&image, &folder.join("vmlinux")).unwrap_err().to_string().contains("no ELF"));
        fs::remove_dir_all(folder).unwrap();
    }
}
