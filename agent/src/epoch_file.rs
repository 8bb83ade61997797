//! The file that gives the worker its epoch. The kubelet reads it when it starts the worker's container (`fileKeyRef`,
//! KEP-3721), so the file must be complete before the barrier is lifted. The Pod's annotation cannot replace the file: the
//! kubelet may start the worker with a Pod that it observed before the report.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::{fs, io};

use jobset_protocol::agent::EPOCH;

/// Longest file that is read, in bytes.
const LONGEST: u64 = 64;

/// The worker that was let start last, as the file of an earlier agent of the Pod says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastLift {
    pub epoch: i32,
    /// When the file was written, in seconds and nanoseconds.
    pub modified: (i64, i64),
}

/// `None` if no worker was let start, as far as the file knows.
pub fn last_lift(path: &Path) -> Option<LastLift> {
    let metadata = fs::metadata(path).ok().filter(|it| it.is_file() && it.len() <= LONGEST)?;
    let text = fs::read_to_string(path).ok()?;
    let epoch = text.trim_end().strip_prefix(EPOCH)?.strip_prefix("='")?.strip_suffix('\'')?.parse().ok()?;
    Some(LastLift { epoch, modified: (metadata.mtime(), metadata.mtime_nsec()) })
}

/// Writes the epoch of the worker that is about to start. `None` removes that of the worker before a restart of the Pod; the
/// kubelet requires the file to exist.
pub fn write(path: &Path, epoch: Option<i32>) -> io::Result<()> {
    replace(path, &epoch.map(|epoch| format!("{EPOCH}='{epoch}'\n")).unwrap_or_default())
}

/// Replaces the content atomically: a reader finds the old text or the new one.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epoch_file_written_again_holds_the_last_epoch_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("epoch");
        for (epoch, text) in [(None, ""), (Some(2), "JOBSET_EPOCH='2'\n"), (None, ""), (Some(3), "JOBSET_EPOCH='3'\n")]
        {
            write(&path, epoch).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(last_lift(&path).map(|lift| lift.epoch), epoch);
        }
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
    }

    #[test]
    fn epoch_file_in_missing_folder_is_an_error() {
        assert!(write(Path::new("/nonexistent/epoch"), None).is_err());
        assert_eq!(last_lift(Path::new("/nonexistent/epoch")), None);
    }
}
