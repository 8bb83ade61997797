//! CPU time of the service, and of everybody else on the machine.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::meter;

/// CPU times at one instant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    at: Instant,
    service: Duration,
    load_generator: Duration,
    machine: Duration,
}

/// CPU times over a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) elapsed: Duration,
    pub(super) service: Duration,
    /// What was used by neither the service nor this process.
    others: Duration,
}

impl Usage {
    /// Reads the CPU times; `pid` is that of the service.
    ///
    /// # Errors
    /// If it has ended.
    pub(super) fn read(pid: u32) -> Result<Self> {
        let (service, load_generator) = (meter::cpu(pid)?, meter::cpu(std::process::id())?);
        Ok(Self { at: Instant::now(), service, load_generator, machine: meter::machine_cpu()? })
    }

    /// What was used since `before`.
    pub(super) fn since(&self, before: &Self) -> Used {
        let service = self.service.saturating_sub(before.service);
        let own = service + self.load_generator.saturating_sub(before.load_generator);
        Used {
            elapsed: self.at.duration_since(before.at),
            service,
            others: self.machine.saturating_sub(before.machine).saturating_sub(own),
        }
    }
}

impl Used {
    /// How many CPUs were busy with something else.
    pub(super) fn others_share(&self) -> f64 {
        self.others.as_secs_f64() / self.elapsed.as_secs_f64()
    }
}
