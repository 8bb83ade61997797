//! Tar archives that are the same bytes for the same input.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// A tar archive without times and owners, so that the same input gives the same digest.
pub(crate) struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    pub(crate) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    pub(crate) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.add(tar::EntryType::Regular, path, mode, content)
    }

    pub(crate) fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.add(tar::EntryType::Directory, path, mode, &[])
    }

    fn add(&mut self, kind: tar::EntryType, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = Self::header(kind, mode, content.len() as u64);
        self.0.append_data(&mut header, path, content).with_context(|| format!("cannot add {path} to the archive"))
    }

    pub(crate) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, path, target).with_context(|| format!("cannot add {path} to the archive"))
    }

    /// Adds what a folder has below this path, in the order of names. A file that can be executed by anybody can be executed by
    /// everybody.
    pub(crate) fn tree(&mut self, path: &str, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (found, name) = (entry.path(), entry.file_name());
            let path = format!("{path}{}", name.to_str().with_context(|| format!("{} is no text", found.display()))?);
            let (kind, mode) = (entry.file_type()?, entry.metadata()?.permissions().mode());
            if kind.is_dir() {
                self.folder(&format!("{path}/"), 0o755)?;
                self.tree(&format!("{path}/"), &found)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&found)?;
                self.link(&path, target.to_str().with_context(|| format!("{} is no text", target.display()))?)?;
            } else if kind.is_file() {
                let mode = if mode & 0o111 == 0 { 0o644 } else { 0o755 };
                self.file(&path, mode, &fs::read(&found)?)?;
            } else {
                bail!("{} is neither a file nor a folder nor a symbolic link", found.display());
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        self.0.into_inner().context("cannot end the archive")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn tree_has_files_folders_and_links_in_order_of_names() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("b/c"))?;
        fs::write(at("b/c/run"), "run")?;
        fs::set_permissions(at("b/c/run"), fs::Permissions::from_mode(0o700))?;
        fs::write(at("a"), "read")?;
        symlink("b/c/run", at("link"))?;
        let mut archive = Archive::new();
        archive.tree("root/", folder.path())?;
        let bytes = archive.finish()?;
        let mut read = tar::Archive::new(&bytes[..]);
        let entries = read.entries()?.map(|entry| {
            let entry = entry?;
            let target = entry.link_name()?.map(|target| target.display().to_string());
            Ok((entry.path()?.display().to_string(), entry.header().mode()?, target))
        });
        let expected = [
            ("root/a", 0o644, None),
            ("root/b/", 0o755, None),
            ("root/b/c/", 0o755, None),
            ("root/b/c/run", 0o755, None),
            ("root/link", 0o777, Some("b/c/run")),
        ];
        let expected = expected.map(|(path, mode, target)| (path.to_owned(), mode, target.map(str::to_owned)));
        assert_eq!(entries.collect::<Result<Vec<_>>>()?, expected);
        Ok(())
    }
}
