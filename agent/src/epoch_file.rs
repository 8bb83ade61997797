//! The file by which the worker learns its epoch. The kubelet reads it as it starts the worker's container (`fileKeyRef`,
//! KEP-3721), so it must be right before the barrier is lifted. The Pod's annotation would not do: the kubelet may start
//! the worker by the Pod as it was before the report.

use std::io;
use std::path::PathBuf;

use jobset_protocol::agent::EPOCH;

/// The file, if there is to be one.
#[derive(Debug)]
pub struct EpochFile(Option<PathBuf>);

impl EpochFile {
    /// The file without an epoch: there is none yet, and that of the Pod's last run is over. The kubelet wants it to exist.
    pub fn empty(path: Option<PathBuf>) -> io::Result<Self> {
        let file = Self(path);
        file.replace("")?;
        Ok(file)
    }

    /// Writes the epoch that the worker is about to run in.
    pub fn write(&self, epoch: i32) -> io::Result<()> {
        self.replace(&format!("{EPOCH}='{epoch}'\n"))
    }

    /// In one step: a reader sees the old text or the new one.
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
    fn it_is_there_from_the_start_and_forgets_the_epoch_of_the_last_run() {
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
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "nothing is left beside it");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn without_a_path_there_is_no_file_and_one_that_cannot_be_written_is_an_error() {
        EpochFile::empty(None).unwrap().write(2).unwrap();
        assert!(EpochFile::empty(Some("/nonexistent/epoch".into())).is_err());
    }
}
