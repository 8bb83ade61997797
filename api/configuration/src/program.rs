//! The programs that read the Go manager's flags and configuration file, and their translated arguments.

/// The program to which the arguments belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `jobset-controller`
    Controller,
    /// `jobset-webhook`
    Webhook,
}

/// The result of a translation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// Arguments for the program. The first one is the name of the program.
    pub arguments: Vec<String>,
    /// Flags and fields of the Go JobSet that are ignored.
    pub ignored: Vec<String>,
}
