//! Lines on standard error that tell a waiting person what is going on.

use std::fmt::Display;
use std::io::Write;
use std::time::Instant;

pub fn progress(line: &str) {
    // Who started this may have gone, and with it the other end of standard error.
    let _ = writeln!(std::io::stderr(), "e2e: {line}");
}

/// The phases of a longer piece of work, each printed with its duration when it is done.
pub struct Phases {
    start: Instant,
    last: Instant,
}

impl Phases {
    pub fn start() -> Self {
        let now = Instant::now();
        Self { start: now, last: now }
    }

    /// Prints how long the phase that ends now took.
    pub fn done(&mut self, phase: impl Display) {
        let now = Instant::now();
        let took = (now - self.last).as_secs_f64();
        let total = (now - self.start).as_secs_f64();
        progress(&format!("{phase} ({took:.1} s, {total:.1} s since the start)"));
        self.last = now;
    }
}
