//! The programs that read the Go manager's flags and configuration file, and their translated arguments.

/// Which program the arguments are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// `jobset-controller`
    Controller,
    /// `jobset-webhook`
    Webhook,
}

/// Arguments that the program understands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Translated {
    /// The arguments, the program's name first.
    pub arguments: Vec<String>,
    /// Flags and fields of the Go JobSet that have no meaning here.
    pub ignored: Vec<String>,
}
