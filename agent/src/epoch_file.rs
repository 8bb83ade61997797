//! The file that gives the worker its epoch. The kubelet reads it when it starts the worker's container (`fileKeyRef`,
//! KEP-3721), so the file must be complete before the barrier is lifted. The Pod's annotation cannot replace the file: the
//! kubelet may start the worker with a Pod that it observed before the report.

use std::io;
use std::path::PathBuf;

use jobset_protocol::agent::EPOCH;

/// The file, if the configuration names one.
#[derive(Debug)]
pub struct EpochFile(Option<PathBuf>);

impl EpochFile {
    /// Writes the file without an epoch, which removes the epoch before the Pod's restart. The kubelet requires the file to
    /// exist.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn empty(path: Option<PathBuf>) -> io::Result<Self> {
        let file = Self(path);
        file.replace("")?;
        Ok(file)
    }

    /// Writes the epoch of the worker that is about to start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, epoch: i32) -> io::Result<()> {
        self.replace(&format!("{EPOCH}='{epoch}'\n"))
    }

    /// Replaces the content atomically: a reader finds the old text or the new one.
    fn replace(&self, text: &str) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let new = path.with_extension("new");
        std::fs::write(&new, text)?;
        std::fs::rename(&new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_file_created_again_drops_the_last_epoch() {
        let folder = std::env::temp_dir().join(format!("jobset-agent-epoch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("epoch");
        let read = || std::fs::read_to_string(&path).unwrap();
        EpochFile::empty(Some(path.clone())).unwrap().write(2).unwrap();
        assert_eq!(read(), "JOBSET_EPOCH='2'\n");
        let file = EpochFile::empty(Some(path.clone())).unwrap();
        assert_eq!(read(), "");
        file.write(3).unwrap();
        assert_eq!(read(), "JOBSET_EPOCH='3'\n");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn epoch_file_without_path_is_none_and_unwritable_path_is_an_error() {
        EpochFile::empty(None).unwrap().write(2).unwrap();
        assert!(EpochFile::empty(Some("/nonexistent/epoch".into())).is_err());
    }
}
