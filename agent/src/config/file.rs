//! Reads the file. It decides what root mounts, so it must be as safe as a crontab of root.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::error::{ConfigError, Place, Problem};

/// Thousands of volumes fit.
const LARGEST: u64 = 16 * 1024 * 1024;

/// What became of reading.
pub(super) enum Content {
    /// There is no such file.
    Absent,
    /// The text; possibly with complaints about the file itself.
    Text(String),
    /// Nothing usable; the complaints say why.
    Unusable,
}

/// Reads the file and notes what is wrong with it. Links are followed: Kubernetes shows a ConfigMap as links.
pub(super) fn read(path: &Path, errors: &mut Vec<ConfigError>) -> Content {
    let place = Place::new(path.display().to_string(), None);
    let mut report = |problem| errors.push(ConfigError { place: place.clone(), problem });
    // Opening a FIFO must not wait for a writer.
    let opened =
        File::options().read(true).custom_flags(nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY).open(path);
    let file = match opened {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Content::Absent,
        Err(error) => {
            report(Problem::Unreadable(error));
            return Content::Unusable;
        }
    };
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) => {
            report(Problem::Unreadable(error));
            return Content::Unusable;
        }
    };
    if !metadata.is_file() {
        report(Problem::NotAFile);
        return Content::Unusable;
    }
    let shown = path.display().to_string();
    let mode = metadata.mode() & 0o7777;
    if mode & 0o022 != 0 {
        report(Problem::WritableByOthers { mode, path: shown.clone() });
    }
    let uid = metadata.uid();
    if uid != 0 && uid != nix::unistd::geteuid().as_raw() {
        report(Problem::ForeignOwner { uid, path: shown });
    }
    let mut bytes = Vec::new();
    match file.take(LARGEST + 1).read_to_end(&mut bytes) {
        Err(error) => report(Problem::Unreadable(error)),
        Ok(_) if bytes.len() as u64 > LARGEST => report(Problem::TooLarge { limit: LARGEST }),
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => return Content::Text(text),
            Err(_) => report(Problem::NotUtf8),
        },
    }
    Content::Unusable
}
