//! `jobset-agent install DIR`: brings the binary into a volume, for containers whose image lacks it.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use jobset_protocol::agent::NAME;

/// Copies the binary that runs into the folder. Gives its path there.
///
/// In one step: whoever starts it while it is replaced starts the old one or the new one.
///
/// # Errors
/// The folder does not exist, is full or may not be written to.
pub fn install(folder: &Path) -> io::Result<PathBuf> {
    let target = folder.join(NAME);
    let new = folder.join(format!(".{NAME}.{}", std::process::id()));
    let copied = copy(&new).and_then(|()| fs::rename(&new, &target));
    if copied.is_err() {
        // The rest of a copy that broke off.
        let _ = fs::remove_file(&new);
    }
    copied.map(|()| target)
}

fn copy(new: &Path) -> io::Result<()> {
    // Not by the path of the program, which may have been replaced since.
    let mut program = File::open("/proc/self/exe").or_else(|_| File::open(std::env::current_exe()?))?;
    let mut file = File::create(new)?;
    io::copy(&mut program, &mut file)?;
    // Whatever the umask: the worker may run as another user.
    file.set_permissions(Permissions::from_mode(0o755))?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_copy_is_the_program_that_runs_and_may_be_started_by_anyone() {
        let folder = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let path = install(folder.path()).unwrap();
            assert_eq!(path, folder.path().join("jobset-agent"));
            let program = std::env::current_exe().unwrap();
            assert!(fs::read(&path).unwrap() == fs::read(program).unwrap());
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        assert_eq!(install(Path::new("/nonexistent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
