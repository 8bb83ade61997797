//! The images that tests and the cluster itself run, beside those of the product.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
pub use jobset_release::Repository;
pub use jobset_release::image::{ImageSpec, build, of_folder};

/// The image of every sandbox container.
pub const PAUSE: &str = "localhost/pause:test";

/// Debian's static busybox with its applets, loaded into every node: `sh`, `nc`, `nslookup`, `httpd` and so on.
pub const BUSYBOX: &str = "localhost/busybox:test";

/// Where Debian's busybox-static puts its program.
pub(crate) const BUSYBOX_PROGRAM: &str = "/bin/busybox";

/// A shell as published examples expect it, `bash` beside Debian's busybox, in which `sleep` is twenty times as fast.
pub const EXAMPLES: &str = "localhost/examples:test";

/// The image that the Go JobSet's e2e suite names.
const GO_SUITE: &str = "docker.io/library/bash:latest";

/// Where Debian's bash-static puts its program.
pub(crate) const BASH_PROGRAM: &str = "/bin/bash-static";

/// Where Debian's curl puts its program.
const CURL_PROGRAM: &str = "/usr/bin/curl";

/// The pause image, from the Go program in `e2e/cluster/pause`.
pub fn pause(program: &Path) -> Result<PathBuf> {
    build(&ImageSpec { user: "65535:65535", ..ImageSpec::new(PAUSE, program) })
}

const APPLETS: [&str; 25] = [
    "cat", "cp", "date", "echo", "env", "false", "grep", "hostname", "httpd", "id", "kill", "ls", "mkdir", "nc",
    "nslookup", "ping", "ps", "rm", "seq", "sh", "sleep", "test", "touch", "true", "wget",
];

/// The busybox image with a link for each common applet, from Debian's busybox-static.
pub fn busybox() -> Result<PathBuf> {
    let spec = ImageSpec::new(BUSYBOX, Path::new(BUSYBOX_PROGRAM));
    build(&ImageSpec { entrypoint: &["/bin/sh"], applets: &APPLETS, ..spec })
}

/// The image [`EXAMPLES`]. Without a command it sleeps for a second, as one that fetches something might take.
pub fn examples(worker: &Path) -> Result<PathBuf> {
    let applets: Vec<&str> = APPLETS.into_iter().filter(|applet| *applet != "sleep").collect();
    let programs = [("bin/bash", Path::new(BASH_PROGRAM)), ("bin/sleep", worker)];
    let spec = ImageSpec::new(EXAMPLES, Path::new(BUSYBOX_PROGRAM));
    build(&ImageSpec { entrypoint: &["/bin/sleep", "20"], programs: &programs, applets: &applets, ..spec })
}

/// The image that the Go JobSet's e2e suite names, from Debian's bash-static and busybox-static.
pub fn go_suite() -> Result<PathBuf> {
    let programs = [("bin/bash", Path::new(BASH_PROGRAM))];
    let spec = ImageSpec::new(GO_SUITE, Path::new(BUSYBOX_PROGRAM));
    build(&ImageSpec { entrypoint: &["/bin/bash"], programs: &programs, applets: &APPLETS, ..spec })
}

/// An image whose entrypoint is the program, with the applets of busybox beside it.
pub fn with_shell(name: &str, program: &Path) -> Result<PathBuf> {
    with_programs(name, program, &[])
}

/// The same with Debian's curl.
pub fn with_shell_and_curl(name: &str, program: &Path) -> Result<PathBuf> {
    ensure!(
        Path::new(CURL_PROGRAM).exists(),
        "{CURL_PROGRAM} is missing: apt-get install -y --no-install-recommends curl"
    );
    let libraries = libraries(Path::new(CURL_PROGRAM))?;
    let mut more = vec![("bin/curl", Path::new(CURL_PROGRAM))];
    more.extend(libraries.iter().map(|library| (library.trim_start_matches('/'), Path::new(library))));
    with_programs(name, program, &more)
}

fn with_programs(name: &str, program: &Path, more: &[(&str, &Path)]) -> Result<PathBuf> {
    let programs = [&[("busybox", Path::new(BUSYBOX_PROGRAM))], more].concat();
    build(&ImageSpec { programs: &programs, applets: &APPLETS, ..ImageSpec::new(name, program) })
}

/// The files that this machine loads to run a program: its libraries, and what loads them.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = Command::new("ldd").arg(program).output().context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "ldd {} ended with {}: {text}", program.display(), output.status);
    Ok(text.split_whitespace().filter(|word| word.starts_with('/')).map(str::to_owned).collect())
}
