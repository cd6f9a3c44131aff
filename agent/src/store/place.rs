//! The shape on disk of what is mounted at a volume's place: from what, with which options in order, made by whom.
//!
//! Never a secret: what looks like one is hidden, and such a file is good enough to know what is missing, not to mount
//! it again.

use agent_core::memory::{Known, Learnt, Memory};
use agent_core::path::{BytePath, escape};
use agent_core::secret::hide;
use agent_core::topology::Options;
use agent_core::volume::Identity;
use serde::{Deserialize, Serialize};

use super::record::Bytes;

/// Where kubelet mounts the volumes of pods.
const PODS: &[u8] = b"/pods/";
const VOLUMES: &[u8] = b"/volumes/";

/// Who makes the mount.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(super) enum FileOwner {
    /// The configuration names it.
    Configuration,
    /// kubelet, for a pod.
    Kubelet {
        /// The pod's uid.
        pod: String,
        /// The plugin that mounts it.
        plugin: String,
        /// The name of the persistent volume, or of the volume in the pod.
        volume: String,
    },
    /// Whoever put it into the mount table.
    Table,
    /// One that a newer agent knows.
    #[serde(other)]
    Unknown,
}

/// A line of the mount table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileMounted {
    fstype: String,
    source: Bytes,
    root: Bytes,
    #[serde(default)]
    options: Vec<Bytes>,
    #[serde(default)]
    super_options: Vec<Bytes>,
}

/// What tells this file system from others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct FileIdentity {
    #[serde(default)]
    fsid: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// Of what it was learnt. Older agents did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    source: Option<Bytes>,
}

impl FileOwner {
    pub(super) fn of(memory: &Memory) -> Self {
        if memory.named {
            return Self::Configuration;
        }
        kubelet(memory.mountpoint.as_bytes()).unwrap_or(Self::Table)
    }

    pub(super) const fn is_configuration(&self) -> bool {
        matches!(self, Self::Configuration)
    }
}

impl FileIdentity {
    pub(super) fn of(memory: &Memory) -> Self {
        let learnt = memory.learnt.as_ref();
        Self {
            fsid: learnt.and_then(|learnt| learnt.identity.fsid.clone()),
            uuid: learnt.and_then(|learnt| learnt.identity.uuid.clone()),
            source: learnt.map(|learnt| without_secret(&learnt.source)),
        }
    }

    /// Where it does not say of what, it was learnt of what was mounted then.
    pub(super) fn into_learnt(self, known: Option<&Known>) -> Option<Learnt> {
        let said = self.source.map(|source| BytePath::from(source).as_bytes().to_vec());
        let source = said.or_else(|| known.map(|known| known.source.clone()))?;
        let identity = Identity { uuid: self.uuid, fsid: self.fsid };
        (identity != Identity::default()).then_some(Learnt { identity, source })
    }
}

/// `…/pods/UID/volumes/PLUGIN/VOLUME`, with `/mount` after it for CSI.
fn kubelet(mountpoint: &[u8]) -> Option<FileOwner> {
    let after = |text: &[u8], mark: &[u8]| {
        text.windows(mark.len()).position(|part| part == mark).map(|at| (at, at + mark.len()))
    };
    let (_, start) = after(mountpoint, PODS)?;
    let rest = mountpoint.get(start..)?;
    let (end, next) = after(rest, VOLUMES)?;
    let mut parts = rest.get(next..)?.split(|byte| *byte == b'/');
    let (pod, plugin, volume) = (rest.get(..end)?, parts.next()?, parts.next()?);
    if pod.contains(&b'/') || !plugin.starts_with(b"kubernetes.io~") {
        return None;
    }
    let text = |bytes| escape(bytes);
    Some(FileOwner::Kubelet { pod: text(pod), plugin: text(plugin).replace('~', "/"), volume: text(volume) })
}

impl FileMounted {
    pub(super) fn of(known: &Known) -> Self {
        Self {
            fstype: known.fstype.clone(),
            source: without_secret(&known.source),
            root: Bytes::from(&known.root),
            options: known.options.iter().map(without_secret).collect(),
            super_options: known.super_options.iter().map(without_secret).collect(),
        }
    }

    pub(super) fn into_known(self) -> Known {
        let bytes = |word: Bytes| BytePath::from(word).as_bytes().to_vec();
        Known {
            fstype: self.fstype,
            source: bytes(self.source),
            root: self.root.into(),
            options: words(self.options.into_iter().map(bytes)),
            super_options: words(self.super_options.into_iter().map(bytes)),
        }
    }
}

/// The kernel's options are C strings: a zero byte ends a word.
fn words(words: impl Iterator<Item = Vec<u8>>) -> Options {
    let words: Vec<Vec<u8>> = words
        .flat_map(|word| word.split(|byte| *byte == 0).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .collect();
    Options::from_words(words.into_iter().filter(|word| !word.is_empty()))
}

/// What a file keeps of it: the same without secrets.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn kept_of(known: &Known) -> Known {
    FileMounted::of(known).into_known()
}

/// The same of a source alone.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn kept_source(source: &[u8]) -> Vec<u8> {
    BytePath::from(without_secret(source)).as_bytes().to_vec()
}

/// The bytes as they are, unless there is a secret among them.
fn without_secret(bytes: &[u8]) -> Bytes {
    let text = escape(bytes);
    let hidden = hide(&text);
    if hidden == text { Bytes::from(&BytePath::new(bytes.to_vec())) } else { Bytes::Text(hidden) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(source: &[u8], options: &[u8]) -> Known {
        Known {
            fstype: "cifs".to_owned(),
            source: source.to_vec(),
            root: "/".into(),
            options: Options::parse(b"rw,relatime"),
            super_options: Options::parse(options),
        }
    }

    #[test]
    fn what_is_mounted_is_found_again_in_its_order_and_its_bytes() {
        let known = known(b"//filer/caf\xe9", b"rw,vers=3.1.1,b,a,b,\xff");
        let text = serde_json::to_string(&FileMounted::of(&known)).unwrap();
        assert_eq!(serde_json::from_str::<FileMounted>(&text).unwrap().into_known(), known);
    }

    #[test]
    fn no_secret_is_written_wherever_it_stands() {
        let known = known(b"https://ann:hunter2@dav/", b"rw,password=hunter2,username=ann%hunter2,uid=7");
        let text = serde_json::to_string(&FileMounted::of(&known)).unwrap();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("uid=7") && text.contains("https://ann:***@dav/"), "{text}");
    }

    #[test]
    fn the_owner_of_a_pods_volume_is_read_from_its_path() {
        let path = b"/var/lib/kubelet/pods/1f-2e/volumes/kubernetes.io~csi/pvc-7/mount";
        let expected = FileOwner::Kubelet {
            pod: "1f-2e".to_owned(),
            plugin: "kubernetes.io/csi".to_owned(),
            volume: "pvc-7".to_owned(),
        };
        assert_eq!(kubelet(path), Some(expected));
        let others: [&[u8]; 4] =
            [b"/mnt/pods/a", b"/pods/a/b/volumes/kubernetes.io~nfs/x", b"/pods/a/volumes/x/y", b"/"];
        for other in others {
            assert_eq!(kubelet(other), None, "{}", escape(other));
        }
    }
}
