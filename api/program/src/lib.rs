//! What server programs have in common: their start, and their small ports.
//!
//! - [`arguments`] reads the command line, with the flags and the configuration file of the Go JobSet's manager,
//! - [`log`] sets up the log,
//! - [`log_limit`] limits what one client can cause in the log,
//! - [`run`] runs the program in a runtime and makes an exit code of its result,
//! - [`stop_on_signals`] cancels a token on SIGTERM or SIGINT,
//! - [`duration`] reads a duration flag,
//! - [`listener`] opens ports,
//! - [`server`] accepts connections within limits, for all ports,
//! - [`ports`] serves probes and metrics,
//! - [`peer`] ends connections whose peer has vanished,
//! - [`lock`] locks a mutex, also after a panic.

pub mod duration;
pub mod listener;
pub mod log;
pub mod log_limit;
pub mod peer;
pub mod ports;
mod run;
pub mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

use clap::Parser;
use jobset_configuration::Program;
use tracing::warn;

pub use run::{run, stop_on_signals};

/// The arguments of a program.
#[derive(Clone, Debug)]
pub struct Arguments<A> {
    /// The program's own arguments.
    pub own: A,
    /// Flags and fields of the Go JobSet's manager that were given and that the program does not have.
    pub ignored: Vec<String>,
}

/// Reads the command line after [`jobset_configuration`] has translated it. Ends the process with a help text or a usage
/// error, as [`Parser::parse`] does.
pub fn arguments<A: Parser>(program: Program) -> Result<Arguments<A>, jobset_configuration::Error> {
    let translated = jobset_configuration::command_line(program)?;
    Ok(Arguments { own: A::parse_from(translated.arguments), ignored: translated.ignored })
}

/// Logs a warning that names the ignored flags and fields, if there are any.
pub fn warn_about_ignored(ignored: &[String]) {
    if !ignored.is_empty() {
        warn!(ignored = ignored.join(", "), "flags and fields of the Go JobSet that have no meaning here");
    }
}

/// Locks the mutex, also after a panic: every critical section leaves consistent data.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
