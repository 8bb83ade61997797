//! The file of a worker's progress, as it is read.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Once;
use std::time::Duration;

use nix::libc::O_NONBLOCK;
use rustix::process::geteuid;

use crate::progress::ProgressLine;

/// Most bytes of the file that are read: those at its end.
const MOST_BYTES: u64 = 512;

/// What tells one state of the file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    inode: u64,
    length: u64,
    /// When it was written, in seconds and nanoseconds.
    pub modified: (i64, i64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileState {
    pub stamp: Stamp,
    pub line: ProgressLine,
    pub ago: Duration,
}

/// Opens the file. A pipe that has just taken its place does not block the thread.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_NONBLOCK).open(path)
}

/// Reads the file. `None` if it is as it was, or is no file. Two writes may have one stamp, so the line counts as well. Of a file that
/// cannot be opened, such as one of another user, the stamp counts alone.
pub fn read(
    path: &Path,
    known: Option<&(Stamp, ProgressLine)>,
    open: impl FnOnce(&Path) -> io::Result<File>,
) -> Option<FileState> {
    // To open a device could do something.
    let before = seen(path, std::fs::metadata(path))?;
    let (metadata, line) = match open(path) {
        Ok(file) => {
            let metadata = seen(path, file.metadata())?;
            let line = last_line(file, metadata.len())?;
            (metadata, line)
        }
        Err(error) => {
            warn(path, &error);
            (before, ProgressLine::default())
        }
    };
    let stamp =
        Stamp { inode: metadata.ino(), length: metadata.len(), modified: (metadata.mtime(), metadata.mtime_nsec()) };
    if known.is_some_and(|(before, read)| *before == stamp && *read == line) {
        return None;
    }
    let ago = metadata.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    Some(FileState { stamp, line, ago })
}

/// The metadata of a file. `None` for anything else, and if there is nothing.
fn seen(path: &Path, metadata: io::Result<Metadata>) -> Option<Metadata> {
    metadata.inspect_err(|error| warn(path, error)).ok().filter(Metadata::is_file)
}

/// Says once why the file cannot be read. A worker that has not begun has no file.
fn warn(path: &Path, error: &io::Error) {
    static ONCE: Once = Once::new();
    if error.kind() != io::ErrorKind::NotFound {
        let (file, user) = (path.display(), geteuid().as_raw());
        let advice =
            "let this user read it, and search its folders: else each write counts as a step, if it is noticed at all";
        ONCE.call_once(|| tracing::warn!(%file, user, %error, advice, "cannot read the progress file"));
    }
}

fn last_line(mut file: File, length: u64) -> Option<ProgressLine> {
    file.seek(SeekFrom::Start(length.saturating_sub(MOST_BYTES))).ok()?;
    let mut bytes = Vec::new();
    // What cannot be read has been written nevertheless.
    let _ = file.take(MOST_BYTES).read_to_end(&mut bytes);
    Some(ProgressLine::parse(&String::from_utf8_lossy(&bytes)))
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mkfifoat};

    use super::*;

    #[test]
    fn line_written_within_one_tick_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        let write = |line: &str, modified: Option<std::time::SystemTime>| {
            std::fs::write(&path, line).unwrap();
            let file = File::options().write(true).open(&path).unwrap();
            file.set_modified(modified.unwrap_or_else(std::time::SystemTime::now)).unwrap();
            std::fs::metadata(&path).unwrap().modified().unwrap()
        };
        let modified = write("7", None);
        let first = read(&path, None, open).unwrap();
        let known = (first.stamp, first.line);
        assert_eq!(read(&path, Some(&known), open), None);
        write("8", Some(modified));
        let second = read(&path, Some(&known), open).unwrap();
        assert_eq!((second.stamp, second.line.step), (known.0, Some(8)));
    }

    #[test]
    fn write_of_file_of_another_user_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        std::fs::write(&path, "7").unwrap();
        let denied = |_: &Path| Err(io::ErrorKind::PermissionDenied.into());
        let first = read(&path, None, denied).unwrap();
        assert_eq!(first.line, ProgressLine::default());
        let known = (first.stamp, first.line);
        assert_eq!(read(&path, Some(&known), denied), None);
        std::fs::write(&path, "10").unwrap();
        assert!(read(&path, Some(&known), denied).is_some());
    }

    #[test]
    fn pipe_in_place_of_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step");
        std::fs::write(&path, "7").unwrap();
        let replaced = |path: &Path| {
            std::fs::remove_file(path).unwrap();
            mkfifoat(CWD, path, Mode::RWXU).unwrap();
            open(path)
        };
        assert_eq!(read(&path, None, replaced), None);
        assert_eq!(read(&path, None, open), None);
    }
}
