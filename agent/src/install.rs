//! `jobset-agent install DIR`: copies the binary into a volume, for containers whose image does not contain it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jobset_protocol::agent::NAME;

/// Copies the running binary into the folder. Returns the path of the copy.
///
/// The copy replaces an older one atomically: a process that starts meanwhile runs the old binary or the new one.
pub fn install(folder: &Path) -> io::Result<PathBuf> {
    let target = folder.join(NAME);
    let new = folder.join(format!(".{NAME}.{}", std::process::id()));
    let copied = copy(&new).and_then(|()| fs::rename(&new, &target));
    if copied.is_err() {
        // Removes what a failed copy leaves.
        let _ = fs::remove_file(&new);
    }
    copied.map(|()| target)
}

fn copy(new: &Path) -> io::Result<()> {
    // The path of the program may name a newer binary by now; /proc/self/exe is the one that runs.
    let mut program = File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))?;
    let mut file = File::create(new)?;
    io::copy(&mut program, &mut file)?;
    // Sets the mode regardless of the umask: the worker may run as another user.
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_twice_leaves_one_executable_copy() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let path = install(folder.path()).unwrap();
            assert_eq!(path, folder.path().join("jobset-agent"));
            let program = std::env::current_exe().unwrap();
            assert!(fs::read(&path).unwrap() == fs::read(program).unwrap());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
        }
    }

    #[test]
    fn install_into_missing_folder_is_an_error() {
        assert_eq!(install(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
