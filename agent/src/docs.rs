//! (Test only.) Pages that are made of tables in the code. `cargo xtask docs` has them written; otherwise a test fails
//! when a page is not what its tables give.

use std::fs;
use std::path::Path;

mod verdicts;

/// Set: pages are written.
const WRITE: &str = "MOUNTIE_WRITE_DOCS";

/// Holds a page of `docs/` to a text.
pub(crate) fn hold(name: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os(WRITE).is_some() {
        fs::write(&path, wanted).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/{name} is not what the tables give: run `cargo xtask docs`");
}

/// Words as code, with spaces between them.
pub(crate) fn code<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ")
}
