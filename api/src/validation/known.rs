//! Errors that are known already: those of an object that is to be changed, however many.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::field::Error;

/// Most errors of an object that those of its successor are compared with.
const COMPARED: usize = 10_000;

/// What is made of errors that are known already, which is told by their digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Known {
    /// None are.
    #[default]
    None,
    /// All are to become known.
    Learn(HashSet<u64>),
    /// They are left out, and so many have been looked at.
    LeaveOut(HashSet<u64>, usize),
}

impl Known {
    /// Takes note of all errors, and lets none pass.
    pub(super) fn learn() -> Self {
        Self::Learn(HashSet::new())
    }

    /// Lets errors pass but for those that this has taken note of.
    pub(super) fn leave_out(self) -> Self {
        match self {
            Self::Learn(known) => Self::LeaveOut(known, 0),
            _ => Self::LeaveOut(HashSet::new(), 0),
        }
    }

    /// Whether the error is one to keep.
    pub(super) fn lets_pass(&mut self, error: &Error) -> bool {
        match self {
            Self::None => true,
            Self::Learn(known) => {
                if known.len() < COMPARED {
                    known.insert(digest(error));
                }
                false
            }
            Self::LeaveOut(known, seen) => {
                *seen += 1;
                // Of more, what is new is not known.
                *seen <= COMPARED && !known.contains(&digest(error))
            }
        }
    }
}

fn digest(error: &Error) -> u64 {
    let mut hasher = DefaultHasher::new();
    error.hash(&mut hasher);
    hasher.finish()
}
