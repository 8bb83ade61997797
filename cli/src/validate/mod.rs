//! `validate`: whether a manifest passes admission, by the very rules that it runs. What the API server checks besides, by
//! the schema of the CustomResourceDefinition, is not looked at.
//!
//! [`input`] finds the objects in files, [`strict`] reads one as strictly as the API server does, [`check`] applies the
//! rules, [`render`] makes text of what comes out. Only [`input`] does I/O.

mod check;
mod input;
mod render;
mod strict;
#[cfg(test)]
mod tests;

pub use check::{Outcome, Refusal, Settings, Verdict, Verdicts, check};
#[cfg(test)]
use input::documents;
pub use input::{Source, sources};
