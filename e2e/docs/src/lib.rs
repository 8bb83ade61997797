//! The documentation site's generated parts: pages that are read from the code, and tables of measured figures.
//!
//! [`pages`] are pure text: [`write`] stores them, [`drift`] compares them with what is stored.

pub mod bounds;
pub mod check;
pub mod costs;
pub mod figures;
pub mod reference;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jobset_harness::paths;

pub fn pages_folder() -> PathBuf {
    paths::workspace().join("docs/src")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its file, below the folder of the pages.
    pub path: PathBuf,
    /// Its Markdown.
    pub text: String,
}

impl Page {
    fn new(path: impl Into<PathBuf>, text: String) -> Self {
        Self { path: path.into(), text }
    }
}

/// All generated pages and tables, from the code and the recorded figures of this workspace.
pub fn pages() -> Result<Vec<Page>> {
    let mut pages = reference::pages(&paths::workspace())?;
    let tables = figures::tables(&paths::workspace().join("docs/figures"))?;
    let readme = fs::read_to_string(paths::workspace().join("README.md")).context("cannot read README.md")?;
    pages.push(Page::new("../../README.md", figures::filled(&readme, &tables)));
    pages.extend(tables);
    Ok(pages)
}

/// Stores the pages.
pub fn write(folder: &Path, pages: &[Page]) -> Result<()> {
    for page in pages {
        let file = folder.join(&page.path);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        fs::write(&file, &page.text).with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(())
}

/// The pages whose stored text is another one than the code gives, or is missing.
pub fn drift(folder: &Path, pages: &[Page]) -> Vec<PathBuf> {
    let is_same = |page: &Page| fs::read_to_string(folder.join(&page.path)).is_ok_and(|stored| stored == page.text);
    pages.iter().filter(|page| !is_same(page)).map(|page| page.path.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_pages_are_what_the_code_says() {
        let drifted = drift(&pages_folder(), &pages().unwrap());
        assert_eq!(drifted, Vec::<PathBuf>::new(), "run `make docs-write`");
    }

    #[test]
    fn pages_have_no_problems() {
        assert_eq!(check::problems(&pages_folder()).unwrap(), Vec::<String>::new());
    }
}
