//! Reads objects from files, folders and standard input.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use crate::error::Error;

/// The path of standard input.
const STDIN: &str = "-";

/// A text and its origin.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its path, or "standard input".
    pub name: String,
    /// The text, or why it cannot be decoded.
    pub text: Result<String, String>,
}

/// An object of a source, or why it cannot be read.
pub(super) type Document = Result<Value, String>;

/// Reads files, the manifests of folders, and standard input.
///
/// # Errors
/// For the first file that cannot be read. A file that is not UTF-8 is an error of its [`Source`] instead.
pub fn sources(paths: &[PathBuf]) -> Result<Vec<Source>, Error> {
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == STDIN {
            let mut bytes = Vec::new();
            let read = std::io::stdin().read_to_end(&mut bytes);
            read.map_err(|source| Error::Read { path: "standard input".into(), source })?;
            sources.push(Source { name: "standard input".to_owned(), text: text(bytes) });
        } else if let Some(url) = path.to_str().filter(|path| is_url(path)) {
            return Err(Error::Url(url.to_owned()));
        } else if path.is_dir() {
            for file in manifests(path)? {
                sources.push(read(&file)?);
            }
        } else {
            sources.push(read(path)?);
        }
    }
    Ok(sources)
}

fn read(path: &Path) -> Result<Source, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    Ok(Source { name: path.display().to_string(), text: text(bytes) })
}

fn text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| format!("is not UTF-8: {}", error.utf8_error()))
}

fn is_url(path: &str) -> bool {
    ["https://", "http://"].iter().any(|scheme| path.starts_with(scheme))
}

/// The manifests of a folder. As with `kubectl apply -f`, folders in it are skipped.
fn manifests(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let error = |source| Error::Read { path: folder.to_owned(), source };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(error)? {
        let path = entry.map_err(error)?.path();
        let is_manifest = path.extension().is_some_and(|end| end == "yaml" || end == "yml" || end == "json");
        if is_manifest && path.is_file() {
            files.push(path);
        }
    }
    if files.is_empty() {
        return Err(Error::EmptyFolder(folder.to_owned()));
    }
    files.sort();
    Ok(files)
}

/// The objects of a text of YAML documents (JSON is YAML), with the items of Lists. Empty documents are skipped.
pub(super) fn documents(text: &str) -> Vec<Document> {
    let mut documents = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        match object(document) {
            Ok(Value::Null) => {}
            Ok(object) => flatten(object, &mut documents),
            Err(error) => {
                documents.push(Err(error));
                // The parser cannot find the start of the next document.
                break;
            }
        }
    }
    documents
}

fn object(document: serde_yaml_ng::Deserializer<'_>) -> Result<Value, String> {
    let mut value = serde_yaml_ng::Value::deserialize(document).map_err(|error| format!("is not YAML: {error}"))?;
    value.apply_merge().map_err(|error| format!("has an invalid merge key: {error}"))?;
    serde_json::to_value(value).map_err(|error| format!("cannot be converted to JSON: {error}"))
}

fn flatten(object: Value, documents: &mut Vec<Document>) {
    let is_list = object["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    match object {
        Value::Object(mut list) if is_list && list.get("items").is_some_and(Value::is_array) => {
            if let Some(Value::Array(items)) = list.remove("items") {
                for item in items {
                    flatten(item, documents);
                }
            }
        }
        object => documents.push(Ok(object)),
    }
}
