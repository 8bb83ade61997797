//! The termination message of the container: the kubelet copies it from a file into the status of the Pod.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

/// The file, where the container does not set `terminationMessagePath`, and its longest content in bytes.
const PATH: &str = "/dev/termination-log";
const LONGEST: usize = 4096;

/// Writes the message, unless the file has one. Of a long message the end is kept.
pub fn write(message: &str) {
    if !has_message() {
        // A container may have a read-only file system, and outside of a container there is no such file.
        let _ = open().and_then(|mut file| file.write_all(end_of(message, LONGEST, char::len_utf8).as_bytes()));
    }
}

/// Removes the message of a worker that failed, because another one starts in the same container.
pub fn clear() {
    if has_message() {
        let _ = open().and_then(|file| file.set_len(0));
    }
}

fn has_message() -> bool {
    std::fs::metadata(PATH).is_ok_and(|file| file.len() > 0)
}

/// Opens the file that the kubelet has made. A device or a pipe of that name may block the agent.
fn open() -> std::io::Result<File> {
    if !Path::new(PATH).is_file() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    File::options().write(true).open(PATH)
}

/// The end of the text, as long as the sizes of its characters allow.
pub fn end_of(text: &str, longest: usize, size: impl Fn(char) -> usize) -> &str {
    let mut left = longest;
    let fits = |(index, character): (usize, char)| {
        left = left.checked_sub(size(character))?;
        Some(index)
    };
    let begin = text.char_indices().rev().map_while(fits).last().unwrap_or(text.len());
    &text[begin..]
}
