//! Where the mount point of a volume leads over symbolic links. A walk may hang on any file system on the way, so it is
//! made by a disposable child, in the mount namespace that is watched.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use agent_core::path::BytePath;
use rustix::fs::{CWD, Mode, OFlags, openat, readlink};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::Settings;
use super::reach::{ReachError, converse};

/// The whole walk.
const DEADLINE: Duration = Duration::from_secs(2);
/// What the kernel shows of a path that was removed.
const REMOVED: &[u8] = b" (deleted)";

/// Has a child follow the path. `None`: it leads to no other.
pub(super) async fn ask(
    settings: &Settings,
    path: &BytePath,
    trying: &Arc<AtomicUsize>,
) -> Result<Option<BytePath>, ReachError> {
    let request = json!({ "path": path.as_bytes() });
    understand(&converse(settings, &request, DEADLINE, trying).await?)
}

fn understand(line: &[u8]) -> Result<Option<BytePath>, ReachError> {
    let said: Value = serde_json::from_slice(line).map_err(|_| ReachError::NoAnswer)?;
    // Nobody can tell: a server that does not answer, a directory that may not be passed.
    if let Some(number) = said.get("errno").and_then(Value::as_i64) {
        let number = i32::try_from(number).map_err(|_| ReachError::NoAnswer)?;
        return Err(ReachError::Walk(io::Error::from_raw_os_error(number)));
    }
    match said.get("leads") {
        Some(Value::Null) => Ok(None),
        leads => leads.and_then(bytes).map(|path| Some(BytePath::new(path))).ok_or(ReachError::NoAnswer),
    }
}

/// In the child: the answer to such a request; `None` where it is none.
pub(super) fn answer(request: &Value) -> Option<Value> {
    let path = bytes(request.get("path")?)?;
    Some(match leads(&path) {
        Ok(leads) => json!({ "leads": leads }),
        Err(errno) => json!({ "errno": errno.raw_os_error() }),
    })
}

fn bytes(value: &Value) -> Option<Vec<u8>> {
    let byte = |number: &Value| number.as_u64().and_then(|number| u8::try_from(number).ok());
    value.as_array()?.iter().map(byte).collect()
}

/// The path without links, where that is another one. What is to be mounted need not be there yet: then it is where its
/// directory leads.
fn leads(path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let found = match walked(path)? {
        Some(found) => Some(found),
        None => {
            let end = path.iter().rposition(|byte| *byte == b'/').filter(|end| *end > 0);
            match end.and_then(|end| path.split_at_checked(end)) {
                Some((directory, name)) => walked(directory)?.map(|found| [found.as_slice(), name].concat()),
                None => None,
            }
        }
    };
    Ok(found.filter(|found| found != path && found.starts_with(b"/") && !found.ends_with(REMOVED)))
}

/// Where a walk ends, as the kernel names it. `None`: it leads nowhere, and that is certain.
fn walked(path: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    let place = match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => return Ok(None),
        place => place?,
    };
    let own = Path::new("/proc/self/fd").join(std::os::fd::AsRawFd::as_raw_fd(&place).to_string());
    Ok(Some(readlink(&own, Vec::new())?.into_bytes()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_path_over_a_link_leads_to_the_path_without_it() {
        let place = tempfile::tempdir().unwrap();
        let root =
            PathBuf::from(OsString::from_vec(walked(place.path().as_os_str().as_bytes()).unwrap().unwrap()));
        std::fs::create_dir_all(root.join("srv/home/data")).unwrap();
        symlink("srv/home", root.join("home")).unwrap();
        symlink(root.join("srv/home/data"), root.join("data")).unwrap();
        symlink("nowhere", root.join("broken")).unwrap();
        let of = |path: &str| {
            let found = leads(root.join(path).as_os_str().as_bytes()).unwrap()?;
            Some(BytePath::new(found.strip_prefix(root.as_os_str().as_bytes()).unwrap()).to_string())
        };
        assert_eq!(of("home/data").as_deref(), Some("/srv/home/data"));
        assert_eq!(of("data").as_deref(), Some("/srv/home/data"));
        assert_eq!(of("home/new").as_deref(), Some("/srv/home/new"), "not made yet");
        for plain in ["srv/home/data", "srv/new", "srv/none/new", "broken"] {
            assert_eq!(of(plain), None, "{plain}");
        }
    }

    #[test]
    fn requests_and_answers_are_understood() {
        let said = answer(&json!({ "path": b"/" })).unwrap();
        assert_eq!(understand(said.to_string().as_bytes()).unwrap(), None);
        let told = understand(br#"{"errno":5}"#).unwrap_err();
        assert!(matches!(&told, ReachError::Walk(error) if error.raw_os_error() == Some(5)), "{told}");
        let path = understand(br#"{"leads":[47,255,97]}"#).unwrap();
        assert_eq!(path.unwrap().as_bytes(), b"/\xffa");
        for wrong in ["", "{}", r#"{"leads":[300]}"#, r#"{"leads":"/x"}"#] {
            assert!(understand(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(answer(&json!({ "hosts": ["a"] })).is_none());
    }
}
