//! `validate`: whether a manifest passes admission, by the code of the admission webhook. The schema of the
//! CustomResourceDefinition, which the API server checks, is not checked here.
//!
//! [`input`] reads objects from files, [`strict`] decodes one and reports unknown fields, [`check`] applies the rules,
//! [`render`] makes the text. Only [`input`] does I/O.

mod check;
mod input;
mod render;
mod strict;
#[cfg(test)]
mod tests;

pub use check::{AdmissionSettings, Outcome, Verdict, Verdicts, check};
pub use input::{Source, sources};
pub use strict::Rejection;
