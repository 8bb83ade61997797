//! The token by which the API server knows the agent. It is read from its file with each request: there are few of them, and
//! a token that was replaced because the last one had expired is then used at once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};

use http::HeaderValue;
use thiserror::Error;

/// Why a file's content is no token.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The file cannot be read, or is no text.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// There is nothing in it.
    #[error("the file is empty")]
    Empty,
    /// More than one line, or worse.
    #[error("it has characters that no header may carry")]
    Malformed,
}

/// The file of a token, and what it held at last.
#[derive(Clone, Debug)]
pub(crate) struct TokenFile {
    path: PathBuf,
    last: Arc<Mutex<HeaderValue>>,
}

impl TokenFile {
    /// The token in this file.
    pub(crate) fn open(path: &Path) -> Result<Self, TokenError> {
        let token = read(path)?;
        Ok(Self { path: path.to_owned(), last: Arc::new(Mutex::new(token)) })
    }

    /// The value of the header `Authorization`. While the file has none, it is the last one: some mount a token for the start
    /// alone, and the API server says whether it is still good.
    pub(crate) fn header(&self) -> HeaderValue {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match read(&self.path) {
            Ok(token) => *last = token,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "cannot use the token, but the one that was there before");
            }
        }
        last.clone()
    }
}

fn read(path: &Path) -> Result<HeaderValue, TokenError> {
    let text = fs::read_to_string(path)?;
    // As client-go does: whoever writes such a file by hand ends it with a newline.
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
    fn a_file_that_has_gone_leaves_its_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "one\n").unwrap();
        let token = TokenFile::open(&path).unwrap();
        assert_eq!(token.header(), "Bearer one");
        fs::write(&path, "two").unwrap();
        assert_eq!(token.header(), "Bearer two");
        fs::remove_file(&path).unwrap();
        assert_eq!(token.header(), "Bearer two");
    }
}
