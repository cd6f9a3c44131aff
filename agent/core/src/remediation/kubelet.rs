//! Which mounts are the kubelet's, by where they are: the one place that says so.

use crate::path::BytePath;

/// Whether a path lies where the kubelet, or a driver for it, makes its mounts: by the name of its directory, or in
/// whichever directory it was given by what only it makes: `…/pods/UID/volumes/kubernetes.io~TYPE/NAME`, a subPath, a
/// device, or `…/plugins/kubernetes.io`.
#[must_use]
pub fn is_kubelets(path: &BytePath) -> bool {
    let mut words = path.as_bytes().split(|byte| *byte == b'/');
    // One window after the other: each begins where the last one did, a word on.
    while let Some(word) = words.next() {
        let mut next = words.clone();
        let is_there = match word {
            b"kubelet" => next.next().is_some_and(|word| matches!(word, b"pods" | b"plugins")),
            b"plugins" => next.next() == Some(b"kubernetes.io"),
            b"pods" => {
                let (what, whose) = (next.nth(1), next.next());
                match what {
                    Some(b"volumes") => whose.is_some_and(|whose| whose.starts_with(b"kubernetes.io~")),
                    Some(b"volume-subpaths" | b"volumeDevices") => true,
                    Some(_) | None => false,
                }
            }
            _ => false,
        };
        if is_there {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_kubelets;

    #[test]
    fn its_directories_are_known_by_name_and_by_what_it_makes_in_them() {
        for path in [
            "/var/lib/kubelet/pods/0a/volumes/kubernetes.io~csi/v/mount",
            "/var/lib/k0s/kubelet/pods/1/anything",
            "/var/lib/kubelet/plugins/example/pv-a/globalmount",
            "/data/k8s/pods/0a/volumes/kubernetes.io~nfs/v",
            "/data/k8s/pods/0a/volume-subpaths/v/c/0",
            "/data/k8s/pods/0a/volumeDevices/x",
            "/data/k8s/plugins/kubernetes.io/csi/d/0a/globalmount",
            "/kubelet/kubelet/pods/1",
        ] {
            assert!(is_kubelets(&path.into()), "{path}");
        }
        for path in
            ["/srv/kubelet/data", "/kubeletx/pods", "/srv/pods/x", "/srv/pods/a/volumes/b", "/plugins/x", "/"]
        {
            assert!(!is_kubelets(&path.into()), "{path}");
        }
    }
}
