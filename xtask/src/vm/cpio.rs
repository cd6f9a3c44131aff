//! Writes an initramfs: an archive in the "newc" format.
//!
//! kernel: Documentation/driver-api/early-userspace/buffer-format.rst; `do_header`, init/initramfs.c, since 2.6.

/// Permissions and type of what is in the archive.
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";

/// An archive under way.
#[derive(Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Adds a directory; those above it must come first.
    pub(crate) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Adds a file that may be run.
    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    /// The whole archive.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Larger files than the format can name are never part of an initramfs; the kernel refuses the archive.
        let size = u32::try_from(content.len()).unwrap_or(u32::MAX);
        let name_size = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        // Inode, mode, owner, group, links, time, size, four numbers of devices, length of the name, checksum.
        let fields = [self.entries, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    /// Names and contents end at multiples of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads an archive by the description of the format: names, modes and contents.
    fn read(bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |n: usize| {
                let text = std::str::from_utf8(&bytes[at + 6 + n * 8..at + 14 + n * 8]).unwrap();
                u32::from_str_radix(text, 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name_at = at + 110;
            let name = std::str::from_utf8(&bytes[name_at..name_at + name_size - 1]).unwrap();
            assert_eq!(bytes[name_at + name_size - 1], 0);
            let content_at = (name_at + name_size).next_multiple_of(4);
            if name == TRAILER {
                assert_eq!(content_at, bytes.len());
                return entries;
            }
            entries.push((name.to_owned(), mode, bytes[content_at..content_at + size].to_vec()));
            at = (content_at + size).next_multiple_of(4);
        }
    }

    #[test]
    fn what_is_put_in_can_be_read_again() {
        let mut archive = Archive::default();
        archive.directory("modules");
        archive.file("modules/a.ko", b"12345");
        archive.file("init", b"");
        assert_eq!(
            read(&archive.finish()),
            [
                ("modules".to_owned(), DIRECTORY, vec![]),
                ("modules/a.ko".to_owned(), PROGRAM, b"12345".to_vec()),
                ("init".to_owned(), PROGRAM, vec![]),
            ]
        );
        assert!(read(&Archive::default().finish()).is_empty());
    }
}
