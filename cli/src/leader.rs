//! Which controller leads, by the Lease of the controllers.

use jobset_api::LEASE;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::output::age;

/// Duration of a Lease that has none, in seconds.
const DEFAULT_DURATION: i32 = 15;
/// A Lease is held for this much longer than its duration: the clocks of the user and of the controller may differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(5);

/// The controller that leads, or the Lease that none holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Leader {
    /// Namespace and name of the Lease; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub lease: String,
    /// Identity of the controller that leads; none if none leads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// If none leads: when the Lease was renewed or given back, if ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed: Option<Timestamp>,
}

impl Leader {
    /// The leader by the Leases of the cluster, of which one is held or else the newest counts.
    pub fn of(leases: &[Lease], now: Timestamp) -> Self {
        let Some(newest) = leases.iter().max_by_key(|lease| (is_held(lease, now), renewed(lease))) else {
            return Self { lease: String::new(), holder: None, renewed: None };
        };
        let held = is_held(newest, now);
        Self {
            lease: format!("{}/{LEASE}", newest.metadata.namespace.as_deref().unwrap_or_default()),
            holder: holder(newest).filter(|_| held).map(str::to_owned),
            renewed: renewed(newest).filter(|_| !held),
        }
    }

    /// That no controller leads, and since when; none if one leads.
    pub fn absence(&self, now: Timestamp) -> Option<String> {
        if self.holder.is_some() {
            return None;
        }
        Some(match self.renewed {
            Some(renewed) => format!("no controller has led for {} (Lease {})", age(Some(renewed), now), self.lease),
            None if self.lease.is_empty() => {
                "no controller is there: the cluster has no Lease of one (only with --leader-elect=false has it none)"
                    .to_owned()
            }
            None => format!("no controller leads (Lease {})", self.lease),
        })
    }
}

fn holder(lease: &Lease) -> Option<&str> {
    lease.spec.as_ref()?.holder_identity.as_deref().filter(|holder| !holder.is_empty())
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds).unwrap_or(DEFAULT_DURATION);
    let limit = SignedDuration::from_secs(seconds.into()) + CLOCK_SKEW;
    holder(lease).is_some() && renewed(lease).is_some_and(|renewed| now.duration_since(renewed) <= limit)
}
