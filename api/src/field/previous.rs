//! The errors of an object before an update. Validation of the update reports only those that are new.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::error::Error;

/// Maximum number of errors that are recorded, and that are compared.
const COMPARED: usize = 10_000;

/// What a list of errors does with errors of the previous object. An error is identified by its digest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PreviousErrors {
    /// The list keeps every error.
    #[default]
    Ignored,
    /// The list keeps no error. It records all of them as errors of the previous object.
    Recorded(HashSet<u64>),
    /// The list keeps the errors that were not recorded. The number counts the errors compared until now.
    Skipped(HashSet<u64>, usize),
}

impl PreviousErrors {
    /// Records all errors, and keeps none.
    pub(super) fn recorder() -> Self {
        Self::Recorded(HashSet::new())
    }

    /// Skips the errors that this has recorded.
    pub(super) fn into_filter(self) -> Self {
        match self {
            Self::Recorded(digests) => Self::Skipped(digests, 0),
            _ => Self::Skipped(HashSet::new(), 0),
        }
    }

    pub(super) fn keeps(&mut self, error: &Error) -> bool {
        match self {
            Self::Ignored => true,
            Self::Recorded(digests) => {
                if digests.len() < COMPARED {
                    digests.insert(digest(error));
                }
                false
            }
            Self::Skipped(digests, compared) => {
                *compared += 1;
                // Beyond the limit the recorder has no digests, so the filter cannot know whether an error is new.
                *compared <= COMPARED && !digests.contains(&digest(error))
            }
        }
    }
}

fn digest(error: &Error) -> u64 {
    let mut hasher = DefaultHasher::new();
    error.hash(&mut hasher);
    hasher.finish()
}
