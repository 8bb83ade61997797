//! The ServiceAccount token of the agent. The file is read for each request: requests are few, and a token that the kubelet
//! has rotated is used at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use http::HeaderValue;
use thiserror::Error;

/// Why a file holds no usable token.
#[derive(Debug, Error)]
pub enum TokenError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("the file is empty")]
    Empty,
    /// For example, the content has several lines.
    #[error("the content is not valid in an HTTP header")]
    Malformed,
}

/// A token's file, and the last token that was read from it.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Arc<Mutex<HeaderValue>>,
}

impl TokenFile {
    /// Reads the token for the first time.
    pub(crate) fn open(path: PathBuf) -> Result<Self, crate::error::Error> {
        match read(&path) {
            Ok(token) => Ok(Self { path, last: Arc::new(Mutex::new(token)) }),
            Err(source) => Err(crate::error::Error::Token { path, source }),
        }
    }

    /// The value of the header `Authorization`. While the file holds no usable token, the last token is used: some Pods mount
    /// a token for the start alone, and the API server decides whether the token is still valid.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&self.path) {
            Ok(token) => *last = token,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot read the token; using the last one");
            }
        }
        last.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue, TokenError> {
    let text = fs::read_to_string(path)?;
    // client-go trims, too: a file that was written by hand ends with a newline.
    let token = text.trim();
    if token.is_empty() {
        return Err(TokenError::Empty);
    }
    let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| TokenError::Malformed)?;
    header.set_sensitive(true);
    Ok(header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_removed_keeps_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(path.clone()).unwrap();
        assert_eq!(token.header(), "Bearer one");
        fs::write(&path, "two").unwrap();
        assert_eq!(token.header(), "Bearer two");
        fs::remove_file(&path).unwrap();
        assert_eq!(token.header(), "Bearer two");
    }
}
