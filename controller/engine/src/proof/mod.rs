//! The proofs of the controller: [`simulation`] draws long lives of large JobSets at random, [`model`] walks through every life
//! of a small one. Both have the same agents ([`agent`]), check the same properties ([`property`], [`group_status`]), and show with the
//! same mutations that a broken rule is caught.

mod agent;
mod group_status;
mod model;
mod mutation;
mod property;
mod simulation;

use agent::{AgentDeed, AgentProcess, AgentWait, ProgressWord};
use group_status::{GroupStatus, check_report, check_start};
use mutation::RuleMutation;
use property::{CheckResult, Property, Violation, ensure};
