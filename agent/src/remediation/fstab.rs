//! `/etc/fstab`: what it says of one mount point, for mount(8) at another place. Bytes in, words out.
//!
//! Where mount(8) reads it differently from what stands there, so does this: the first entry of a mount point counts
//! (`mnt_context_apply_fstab`, libmount), an entry without options has the defaults, and what only says when an entry
//! is mounted at boot says nothing here.

use agent_core::path::{BytePath, escape};
use agent_core::secret::{is_secret, login};

use crate::sys::mountinfo::unescape;

/// Where it is, in the watched namespace.
pub(super) const FILE: &str = "/etc/fstab";

/// Options about the boot alone: mount(8) takes them out as well, except that with `nofail` it calls a device that is
/// not there a success. `x-systemd.…` and every other `x-…` is for others (mount(8), "x-" options),
/// except that `x-mount.mkdir` says that the mount point may be made.
const BOOT_OPTIONS: [&str; 6] = ["defaults", "auto", "noauto", "nofail", "_netdev", "comment"];

/// Types whose password mount(8)'s helper takes from the environment.
const SMB: [&str; 2] = ["cifs", "smb3"];

/// What is to be mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// As it stands: `UUID=…` and `LABEL=…` are resolved by mount(8).
    pub(super) source: Vec<u8>,
    pub(super) fstype: String,
    /// In order, without those about the boot.
    pub(super) options: Vec<String>,
}

/// Why there is no entry to go by.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum FstabError {
    #[error("{FILE} has no entry for {0}")]
    NoEntry(BytePath),
    #[error("the entry of {0} in {FILE} has no type")]
    NoType(BytePath),
    #[error("the type or the options of {0} in {FILE} are no text")]
    NotText(BytePath),
    /// The value is never named.
    #[error(
        "the entry of {0} in {FILE} carries a secret ({1}), which would show in process lists; put it into a file that only root can read and use credentials=FILE (ceph: secretfile=FILE), or environment_file in [volume.repair]"
    )]
    Secret(BytePath, String),
}

/// The first entry for one of these places, which are names of the same mount point.
pub(super) fn find(text: &[u8], places: &[&BytePath]) -> Result<Entry, FstabError> {
    let place = || places.first().map_or_else(|| BytePath::from("/"), |place| (*place).clone());
    let mut lines = text.split(|byte| *byte == b'\n').filter_map(fields);
    let found = lines.find(|fields| places.iter().any(|place| is_same(&fields.target, place)));
    let Some(Fields { source, fstype, options, .. }) = found else {
        return Err(FstabError::NoEntry(place()));
    };
    if fstype.is_empty() {
        return Err(FstabError::NoType(place()));
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| FstabError::NotText(place()));
    let (fstype, options) = (text(fstype)?, text(options)?);
    let options: Vec<String> = split(&options).filter(|option| counts(option)).map(str::to_owned).collect();
    match secret_in(&source, &fstype, &options) {
        Some(name) => Err(FstabError::Secret(place(), name)),
        None => Ok(Entry { source, fstype, options }),
    }
}

struct Fields {
    source: Vec<u8>,
    target: Vec<u8>,
    fstype: Vec<u8>,
    options: Vec<u8>,
}

/// One line; `None` for a comment, an empty line, and one without a mount point.
fn fields(line: &[u8]) -> Option<Fields> {
    let line = line.trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return None;
    }
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty());
    let mut next = || words.next().map(unescape).unwrap_or_default();
    let fields = Fields { source: next(), target: next(), fstype: next(), options: next() };
    fields.target.starts_with(b"/").then_some(fields)
}

/// Without regard to slashes that mean nothing.
fn is_same(target: &[u8], place: &BytePath) -> bool {
    let parts = |path| <[u8]>::split(path, |byte| *byte == b'/').filter(|part| !part.is_empty());
    parts(target).eq(parts(place.as_bytes()))
}

/// At commas, but not within quotes, as a context of SELinux has them (`ul_optstr_next`, libmount).
fn split(options: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    options
        .split(move |c| {
            is_quoted ^= c == '"';
            c == ',' && !is_quoted
        })
        .filter(|option| !option.is_empty())
}

fn counts(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    !BOOT_OPTIONS.contains(&name) && (!name.starts_with("x-") || name == "x-mount.mkdir")
}

/// The name of what carries a secret that would stand in the arguments of a helper.
fn secret_in(source: &[u8], fstype: &str, options: &[String]) -> Option<String> {
    if login(&escape(source)).is_some() {
        return Some("user:password@host".to_owned());
    }
    let pairs = options.iter().filter_map(|option| option.split_once('='));
    let mut secrets = pairs.filter(|(name, value)| {
        // A key may be named by its file; a password may not.
        let is_reference = name.ends_with("key") && value.starts_with('/');
        let by_environment = SMB.contains(&fstype) && matches!(*name, "password" | "pass");
        is_secret(name, value) && !value.is_empty() && !is_reference && !by_environment
    });
    secrets.next().map(|(name, _)| format!("{name}=…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, place: &str) -> Result<Entry, FstabError> {
        find(text.as_bytes(), &[&BytePath::from(place)])
    }

    fn entry(source: &str, fstype: &str, options: &[&str]) -> Entry {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        Entry { source: source.as_bytes().to_vec(), fstype: fstype.to_owned(), options }
    }

    const TEXT: &str = "# a comment\n\
        UUID=0a1b-2c3d\t/mnt/disk  ext4\tnoatime,nofail,x-systemd.device-timeout=9 0 2\n\
        \n\
        filer:/a\\040b /mnt/a\\040b/ nfs4 vers=4.2,noauto,_netdev,x-systemd.automount,hard\n\
        LABEL=first //mnt//twice xfs\n\
        LABEL=second /mnt/twice ext4 ro\n\
        LABEL=made /run/made ext4 x-mount.mkdir=0755,x-gvfs-show\n\
        none none swap sw 0 0\n\
        /srv /mnt/bind none bind,context=\"a,nofail,b\",defaults 0 0\n\
        short\n\
        src /mnt/typeless\n";

    #[test]
    fn an_entry_is_found_and_says_what_mount_would_take_from_it() {
        assert_eq!(found(TEXT, "/mnt/disk"), Ok(entry("UUID=0a1b-2c3d", "ext4", &["noatime"])));
        assert_eq!(found(TEXT, "/mnt/a b"), Ok(entry("filer:/a b", "nfs4", &["vers=4.2", "hard"])));
        assert_eq!(found(TEXT, "/mnt/twice"), Ok(entry("LABEL=first", "xfs", &[])));
        assert_eq!(found(TEXT, "/run/made"), Ok(entry("LABEL=made", "ext4", &["x-mount.mkdir=0755"])));
        let bind = entry("/srv", "none", &["bind", "context=\"a,nofail,b\""]);
        assert_eq!(found(TEXT, "/mnt/bind/"), Ok(bind));
    }

    #[test]
    fn any_of_the_names_of_a_place_will_do() {
        let names = [&BytePath::from("/link/disk"), &BytePath::from("/mnt/disk")];
        assert!(find(TEXT.as_bytes(), &names).is_ok());
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(found(TEXT, "/mnt/none"), Err(FstabError::NoEntry("/mnt/none".into())));
        assert_eq!(found(TEXT, "none"), Err(FstabError::NoEntry("none".into())));
        assert_eq!(found(TEXT, "/mnt/typeless"), Err(FstabError::NoType("/mnt/typeless".into())));
        let bytes = find(b"s /v ext4 a\xe9", &[&"/v".into()]);
        assert_eq!(bytes, Err(FstabError::NotText("/v".into())));
    }

    #[test]
    fn secrets_are_refused_by_name_unless_a_helper_takes_them_from_its_environment() {
        for line in [
            "mon:/ /v ceph name=a,secret=Zx9",
            "s /v nfs4 password=Zx9",
            "//s/x /v cifs username=u%Zx9",
            "//s/x /v cifs password2=Zx9",
            "https://u:Zx9@dav.example/ /v davfs rw",
        ] {
            let text = found(line, "/v").unwrap_err().to_string();
            assert!(text.contains("carries a secret") && !text.contains("Zx9"), "{text}");
        }
        for line in [
            "//s/x /v cifs username=u,password=Zx9",
            "//s/x /v cifs credentials=/etc/cred",
            "mon:/ /v ceph name=a,secretfile=/etc/ceph/key",
            "s /v ecryptfs key=/etc/key",
            "filer:/export@daily /v nfs4 hard",
        ] {
            assert!(found(line, "/v").is_ok(), "{line}");
        }
    }
}
