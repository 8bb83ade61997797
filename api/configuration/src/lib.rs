//! Translates the command line and the configuration file of the Go JobSet's manager into flags of the controller and
//! of the admission service. A user who replaces the manager keeps the file and the arguments of the Deployment.
//!
//! [`translate`] does no I/O except reading the file. A flag on the command line overrides the file. Flags and fields
//! that neither program has are ignored and listed, so that the program can log a warning.

mod file;
mod flags;
mod program;

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

pub use program::{Program, Translated};

/// Flag for the path of the configuration file (`config.jobset.x-k8s.io/v1alpha1`, kind Configuration).
const CONFIG: &str = "config";

/// The configuration file cannot be used.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum Error {
    #[error("cannot read the configuration file {0}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("the configuration file {0} is not YAML")]
    Yaml(PathBuf, #[source] serde_yaml_ng::Error),
    #[error("the configuration file {0} is not a map of fields")]
    Shape(PathBuf),
    #[error("the configuration file {file}: {field}: {value} is not {expected}")]
    Value { file: PathBuf, field: String, value: String, expected: &'static str },
}

/// Translates the arguments of the running program.
pub fn command_line(program: Program) -> Result<Translated, Error> {
    translate(program, std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect())
}

/// Translates the arguments of a program. The first argument is the name of the program.
///
/// # Errors
/// [`Error`] if the configuration file cannot be read, is not YAML, or has a value of the wrong type.
pub fn translate(program: Program, arguments: Vec<String>) -> Result<Translated, Error> {
    let mut translated = flags::translate(program, arguments);
    let Some(path) = flags::value(&translated.arguments, CONFIG).map(PathBuf::from) else { return Ok(translated) };
    let text = fs::read_to_string(&path).map_err(|error| Error::Read(path.clone(), error))?;
    let content: Value = serde_yaml_ng::from_str(&text).map_err(|error| Error::Yaml(path.clone(), error))?;
    if !(content.is_object() || content.is_null()) {
        return Err(Error::Shape(path));
    }
    let gates = flags::value(&translated.arguments, "feature-gates");
    let read = file::flags(program, &content, gates.as_deref())
        .map_err(|file::Mismatch { field, value, expected }| Error::Value { file: path, field, value, expected })?;
    let given: HashSet<String> = translated.arguments.iter().filter_map(|it| flags::name(it)).map(Into::into).collect();
    let more = read.flags.into_iter().filter(|(name, _)| !given.contains(*name));
    translated.arguments.extend(more.map(|(name, value)| format!("--{name}={value}")));
    translated.ignored.extend(read.ignored);
    Ok(translated)
}

#[cfg(test)]
mod tests;
