//! What the file may say one day and this version does not do yet. Saying so is better than ignoring it: an
//! operator who asked for a repair must not believe there is one. A later version removes a row.

use toml::de::DeValue;

/// One documented value without an implementation.
pub(super) struct Unsupported {
    /// Key path without indices.
    key: &'static str,
    /// Which values.
    which: Which,
    /// What can be done today.
    pub(super) instead: &'static str,
}

enum Which {
    Any,
    True,
    Text(&'static str),
}

const TABLE: [Unsupported; 3] = [
    Unsupported {
        key: "volume.repair.method",
        which: Which::Text("csi"),
        instead: "use method = \"mount\" with source, fstype and options, or method = \"command\"",
    },
    Unsupported {
        key: "volume.repair.hook",
        which: Which::Any,
        instead: "leave it out; the ladder then begins with the repair method",
    },
    Unsupported {
        key: "volume.repair.delete_pods",
        which: Which::True,
        instead: "write delete_pods = false; pods that hold dead files must be deleted by hand",
    },
];

/// The row for this key and value, if there is one.
pub(super) fn lookup(key: &str, value: &DeValue<'_>) -> Option<&'static Unsupported> {
    TABLE.iter().filter(|row| row.key == key).find(|row| match row.which {
        Which::Any => true,
        Which::True => value.as_bool() == Some(true),
        Which::Text(text) => value.as_str() == Some(text),
    })
}
