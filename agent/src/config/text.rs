//! Names, paths and other texts, each with its own rules.

use std::borrow::Cow;
use std::path::PathBuf;

use agent_core::path::BytePath;
use agent_core::remediation::unit::is_name;
use agent_core::volume::HookAddress;
use hyper::http::uri::{Authority, PathAndQuery};

use super::MountNamespace;
use super::scalar::{Rejected, Scalar};

/// kernel: `PATH_MAX`, include/uapi/linux/limits.h, with its NUL.
const LONGEST_PATH: usize = 4095;
/// The probe worker reads no more of a sentinel.
const LONGEST_CONTENT: usize = 64 * 1024;

/// Undoes `agent_core::path::escape`, so that a path may be copied from where it was shown: `\xNN` is one
/// byte. A backslash itself is `\x5c`.
pub(super) fn unescape(text: &str) -> Result<Vec<u8>, Rejected> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut parts = text.split('\\');
    bytes.extend_from_slice(parts.next().unwrap_or_default().as_bytes());
    for part in parts {
        let digits = part.strip_prefix('x').and_then(|rest| rest.split_at_checked(2));
        let byte = digits.and_then(|(digits, rest)| {
            let both = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            both.then(|| u8::from_str_radix(digits, 16).ok()).flatten().map(|byte| (byte, rest))
        });
        let Some((byte, rest)) = byte else {
            return Err(Rejected {
                reason: "has a backslash that begins no \\xNN",
                advice: Some(
                    "write a backslash as '\\x5c'; shares of Windows as \"//server/share\"".to_owned(),
                ),
            });
        };
        bytes.push(byte);
        bytes.extend_from_slice(rest.as_bytes());
    }
    if bytes.contains(&0) {
        return Err(Rejected::because("contains a NUL byte"));
    }
    Ok(bytes)
}

/// The components of a path, without empty ones and `.`; refuses `..`.
fn components(bytes: &[u8]) -> Result<Vec<&[u8]>, Rejected> {
    if bytes.len() > LONGEST_PATH {
        return Err(Rejected::because("is longer than the kernel's limit of 4095 bytes"));
    }
    let parts: Vec<&[u8]> =
        bytes.split(|byte| *byte == b'/').filter(|part| !matches!(part, [] | [b'.'])).collect();
    if parts.contains(&b"..".as_slice()) {
        return Err(Rejected::because("contains \"..\""));
    }
    Ok(parts)
}

fn absolute(bytes: &[u8]) -> Result<Vec<u8>, Rejected> {
    if bytes.is_empty() {
        return Err(Rejected::because("is empty"));
    }
    if !bytes.starts_with(b"/") {
        return Err(Rejected::because("is relative"));
    }
    let mut path = vec![b'/'];
    path.extend_from_slice(&components(bytes)?.join(&b'/'));
    Ok(path)
}

/// A mount point: absolute, as the mount table has it.
pub(super) struct MountPoint(pub(super) BytePath);

impl Scalar for MountPoint {
    fn expected() -> Cow<'static, str> {
        "an absolute path without \"..\", such as \"/mnt/models\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        absolute(&unescape(text)?).map(|path| Self(BytePath::new(path)))
    }
}

/// A path of the agent's own.
pub(super) struct OwnPath(pub(super) PathBuf);

impl Scalar for OwnPath {
    fn expected() -> Cow<'static, str> {
        "an absolute path without \"..\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.contains(char::is_control) {
            return Err(Rejected::because("contains a control character"));
        }
        let path = absolute(text.as_bytes())?;
        if path == b"/" {
            return Err(Rejected::because("is the root directory"));
        }
        String::from_utf8(path).map(|path| Self(PathBuf::from(path))).map_err(|_| Rejected::default())
    }
}

/// The socket of the volume plugin; `None` turns it off.
pub(super) struct PluginSocket(pub(super) Option<PathBuf>);

impl Scalar for PluginSocket {
    fn expected() -> Cow<'static, str> {
        "an absolute path that ends in \".sock\", such as \"/run/docker/plugins/mountie.sock\", or \"\" to turn it off"
            .into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let path = OwnPath::from_text(text)?.0;
        if path.extension().is_none_or(|extension| extension != "sock") {
            return Err(Rejected::because("does not end in \".sock\", so that Docker would not find it"));
        }
        Ok(Self(Some(path)))
    }
}

impl Scalar for MountNamespace {
    fn expected() -> Cow<'static, str> {
        "\"self\" or an absolute path such as \"/proc/1/ns/mnt\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text == "self" {
            return Ok(Self::Own);
        }
        OwnPath::from_text(text).map(|path| Self::Path(path.0))
    }
}

/// A path below a volume's root.
pub(super) struct InnerPath(pub(super) BytePath);

impl Scalar for InnerPath {
    fn expected() -> Cow<'static, str> {
        "a path below the volume's root without \"..\", such as \".mountie\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        let bytes = unescape(text)?;
        if bytes.starts_with(b"/") {
            return Err(Rejected::because("is absolute"));
        }
        if bytes.ends_with(b"/") {
            return Err(Rejected::because("names a directory"));
        }
        let path = components(&bytes)?.join(&b'/');
        if path.is_empty() {
            return Err(Rejected::because("names no file"));
        }
        Ok(Self(BytePath::new(path)))
    }
}

/// A systemd unit that mounts.
pub(super) struct Unit(pub(super) String);

impl Scalar for Unit {
    fn expected() -> Cow<'static, str> {
        "the full name of a unit, such as \"mnt-models.mount\" or \"rclone@models.service\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if is_name(text) {
            return Ok(Self(text.to_owned()));
        }
        let is_bare = is_name(&format!("{text}.service"));
        Err(if is_bare && !text.contains('.') {
            Rejected::write(format!("\"{text}.service\" or \"{text}.mount\""))
        } else {
            Rejected::default()
        })
    }
}

/// What a sentinel must contain.
pub(super) struct Content(pub(super) Vec<u8>);

impl Scalar for Content {
    fn expected() -> Cow<'static, str> {
        "a text of at most 64 KiB".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.len() > LONGEST_CONTENT {
            return Err(Rejected::because("is longer"));
        }
        Ok(Self(text.as_bytes().to_vec()))
    }
}

/// A volume's name: a label, a command-line argument and part of a URL, so it is kept plain.
pub(super) struct VolumeName(pub(super) String);

impl Scalar for VolumeName {
    fn expected() -> Cow<'static, str> {
        "1 to 128 characters out of A-Z a-z 0-9 . _ : / @ -, not beginning with \"-\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() {
            return Err(Rejected::because("is empty"));
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:/@-".contains(&byte));
        if !plain || text.len() > 128 || text.starts_with('-') {
            return Err(Rejected::default());
        }
        Ok(Self(text.to_owned()))
    }
}

/// `SOURCE` of mount(8).
pub(super) struct SourceText(pub(super) Vec<u8>);

impl Scalar for SourceText {
    fn expected() -> Cow<'static, str> {
        "what mount(8) takes as the source, such as \"filer1:/export/models\" or \"/dev/disk/by-uuid/…\""
            .into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() {
            return Err(Rejected::because("is empty"));
        }
        if text.starts_with('-') {
            return Err(Rejected::because("would be taken for a flag"));
        }
        let bytes = unescape(text)?;
        if bytes.len() > LONGEST_PATH {
            return Err(Rejected::because("is longer than 4095 bytes"));
        }
        Ok(Self(bytes))
    }
}

/// A file-system type.
pub(super) struct FsType(pub(super) String);

impl Scalar for FsType {
    fn expected() -> Cow<'static, str> {
        "one file-system type, such as \"nfs4\", \"cifs\", \"fuse.sshfs\" or \"ext4\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.contains(['*', '?', ',']) {
            return Err(Rejected::because("names several types"));
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-#".contains(&byte));
        if text.is_empty() || !plain || text.len() > 64 || text.starts_with('-') {
            return Err(Rejected::default());
        }
        Ok(Self(text.to_owned()))
    }
}

/// One mount option.
pub(super) struct MountOption(pub(super) String);

impl Scalar for MountOption {
    fn expected() -> Cow<'static, str> {
        "one mount option, such as \"ro\" or \"vers=4.2\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() || text.contains(char::is_control) {
            return Err(Rejected::because("is empty or contains a control character"));
        }
        if text.starts_with('-') {
            return Err(Rejected::because("begins with \"-\", which belongs to flags of mount(8)"));
        }
        // Without a bind flag it changes the whole file system under everybody who uses it.
        if text == "remount" {
            return Err(Rejected::because("would change the mounted file system for everybody"));
        }
        // mount(8) keeps commas within double quotes together (SELinux contexts).
        let outside: Vec<&str> = text.split('"').step_by(2).collect();
        if outside.iter().any(|part| part.contains(',')) {
            return Err(Rejected {
                reason: "has a comma",
                advice: Some("write each option as an entry of its own".to_owned()),
            });
        }
        Ok(Self(text.to_owned()))
    }
}

/// One argument of a command.
pub(super) struct Argument(pub(super) String);

impl Scalar for Argument {
    fn expected() -> Cow<'static, str> {
        "a text".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.contains('\0') {
            return Err(Rejected::because("contains a NUL byte"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// Where a hook listens.
pub(super) struct HookUrl(pub(super) HookAddress);

impl Scalar for HookUrl {
    fn expected() -> Cow<'static, str> {
        "an address such as \"http://127.0.0.1:8080/ask\" or \"unix:/run/ask.sock\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err(Rejected::because("contains white space or a control character"));
        }
        if let Some(path) = text.strip_prefix("unix:") {
            let path = absolute(path.as_bytes())?;
            let path = String::from_utf8(path).map_err(|_| Rejected::default())?;
            return Ok(Self(HookAddress::Unix(path)));
        }
        let Some(rest) = text.strip_prefix("http://") else {
            if text.starts_with("https:") {
                return Err(Rejected {
                    reason: "is encrypted, which the agent does not speak",
                    advice: Some("write exec = [\"/etc/mountie/ask\"], a program that does".to_owned()),
                });
            }
            return Err(Rejected::default());
        };
        let at = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at_checked(at).unwrap_or((rest, ""));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let valid = authority.parse::<Authority>().is_ok_and(|found| {
            let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
            !found.host().is_empty() && (!has_port || found.port_u16().is_some())
        });
        if !valid || authority.contains('@') || path.parse::<PathAndQuery>().is_err() {
            return Err(Rejected::because("has no valid host, port or path"));
        }
        Ok(Self(HookAddress::Http { authority: authority.to_owned(), path }))
    }
}

/// A file-system UUID as `blkid` prints it; short ones belong to FAT, long ones with dashes to the others.
pub(super) struct Uuid(pub(super) String);

impl Scalar for Uuid {
    fn expected() -> Cow<'static, str> {
        "a UUID as blkid prints it, such as \"0a1b2c3d-…\" or \"12AB-34CD\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
        let plain = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if !plain || !(8..=32).contains(&digits) || text.len() > 64 {
            return Err(Rejected::default());
        }
        Ok(Self(text.to_owned()))
    }
}

/// `f_fsid` of statfs.
pub(super) struct Fsid(pub(super) String);

impl Scalar for Fsid {
    fn expected() -> Cow<'static, str> {
        "16 hexadecimal digits, as `stat -f -c %i` prints them".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.len() != 16 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Rejected::default());
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

/// A pattern of a selector.
pub(super) struct Glob(pub(super) String);

impl Scalar for Glob {
    fn expected() -> Cow<'static, str> {
        "a pattern with * and ?, such as \"nfs*\" (over paths: ** crosses directories)".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if text.is_empty() || text.contains(char::is_control) {
            return Err(Rejected::because("is empty or contains a control character"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A pattern over mount points.
pub(super) struct PathGlob(pub(super) String);

impl Scalar for PathGlob {
    fn expected() -> Cow<'static, str> {
        "a pattern over absolute paths, such as \"/srv/**\"".into()
    }

    fn from_text(text: &str) -> Result<Self, Rejected> {
        if !text.starts_with(['/', '*']) {
            return Err(Rejected::because("matches no mount point: they begin with \"/\""));
        }
        Glob::from_text(text).map(|glob| Self(glob.0))
    }
}
