//! The folder of what is downloaded and built for the guests. Each part is made beside its place and moved there
//! when it is complete, so that an interrupted run leaves nothing that looks finished.

use std::fs::{self, File, create_dir_all, remove_dir_all, remove_file};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::command::{root, step};

/// Names the folder, instead of `target/vm`.
const VARIABLE: &str = "MOUNTIE_VM_CACHE";

/// In each part: what it was made from. Another text makes the part anew.
const RECIPE: &str = "recipe";

/// The folder.
pub(crate) struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// Makes the folder where it is missing.
    pub(crate) fn open() -> Result<Self> {
        let folder = folder();
        create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self { folder })
    }

    /// Where it is.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of a part, made by `make` unless it is there and was made from the same recipe.
    pub(crate) fn part(
        &self,
        name: &str,
        recipe: &str,
        make: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let place = self.folder.join(name);
        let is_made = || fs::read_to_string(place.join(RECIPE)).is_ok_and(|made_from| made_from == recipe);
        if is_made() {
            return Ok(place);
        }
        let _lock = lock(&self.folder, name)?;
        if is_made() {
            return Ok(place);
        }
        let begin = Instant::now();
        step(&format!("making {name} in {}", self.folder.display()));
        let unfinished = self.folder.join(format!("{name}.unfinished"));
        clear(&unfinished)?;
        create_dir_all(&unfinished).with_context(|| format!("cannot make {}", unfinished.display()))?;
        make(&unfinished).with_context(|| format!("cannot make {name} for the guests"))?;
        fs::write(unfinished.join(RECIPE), recipe)
            .with_context(|| format!("cannot write in {}", unfinished.display()))?;
        clear(&place)?;
        fs::rename(&unfinished, &place).with_context(|| format!("cannot move {name} to its place"))?;
        step(&format!("{name} made in {:.0} s", begin.elapsed().as_secs_f64()));
        Ok(place)
    }
}

/// Waits until no other process has the lock of that name in a folder; held until it is dropped.
pub(crate) fn lock(folder: &Path, name: &str) -> Result<File> {
    let path = folder.join(format!("{name}.lock"));
    let file = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    if file.try_lock().is_err() {
        step(&format!("waiting for another run that has {}", path.display()));
        file.lock().with_context(|| format!("cannot lock {}", path.display()))?;
    }
    Ok(file)
}

/// Where parts and the folders of running guests are.
pub(crate) fn folder() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| root().join("target").join("vm"), PathBuf::from)
}

/// Removes a folder of this cache or of a guest, if it is there.
pub(crate) fn clear(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { remove_dir_all(path) } else { remove_file(path) };
    match removed {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_part_is_made_once_for_each_recipe_and_never_left_unfinished() {
        let folder = std::env::temp_dir().join(format!("mountie-vm-cache-{}", std::process::id()));
        create_dir_all(&folder).unwrap();
        let cache = Cache { folder: folder.clone() };
        let write = |text: &'static str| move |at: &Path| Ok(fs::write(at.join("file"), text)?);
        let read = |place: PathBuf| fs::read_to_string(place.join("file")).unwrap();

        let failed = cache.part("x", "1", |at| {
            fs::write(at.join("file"), "half")?;
            bail!("interrupted")
        });
        assert!(failed.is_err() && !folder.join("x").exists());
        assert_eq!(read(cache.part("x", "1", write("first")).unwrap()), "first");
        assert_eq!(read(cache.part("x", "1", |_| bail!("not again")).unwrap()), "first");
        assert_eq!(read(cache.part("x", "2", write("second")).unwrap()), "second");
        remove_dir_all(folder).unwrap();
    }
}
