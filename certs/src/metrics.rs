//! What is measured of the certificate in service.

use jiff::Timestamp;
use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

/// The owner's handles.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Without a series until there is a certificate: one that expires in 1970 would raise alarms.
    expiry: IntGaugeVec,
    reloads: IntCounter,
    mismatch: IntGauge,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// When the certificate in service expires.
    pub(crate) not_after: Option<Timestamp>,
    /// How often another certificate took the place of the one in service.
    pub(crate) reloads: u64,
    /// Whether a live caBundle does not verify it, if that is known.
    pub(crate) mismatch: Option<bool>,
}

impl Metrics {
    /// Registers them.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let expiry = Opts::new(
            "jobset_webhook_cert_expiry_timestamp_seconds",
            "When the serving certificate expires, in seconds since the epoch.",
        );
        let metrics = Self {
            expiry: IntGaugeVec::new(expiry, &[])?,
            reloads: IntCounter::new(
                "jobset_webhook_cert_reloads_total",
                "How often another serving certificate took the place of the one before.",
            )?,
            mismatch: IntGauge::new(
                "jobset_webhook_ca_mismatch",
                "1 while a live caBundle does not verify the serving certificate: API servers cannot call this replica.",
            )?,
        };
        registry.register(Box::new(metrics.expiry.clone()))?;
        registry.register(Box::new(metrics.reloads.clone()))?;
        registry.register(Box::new(metrics.mismatch.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn set(&self, vitals: Vitals) {
        if let Some(not_after) = vitals.not_after {
            self.expiry.with_label_values::<&str>(&[]).set(not_after.as_second());
        }
        self.reloads.inc_by(vitals.reloads.saturating_sub(self.reloads.get()));
        if let Some(mismatch) = vitals.mismatch {
            self.mismatch.set(mismatch.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn before_there_is_a_certificate_nothing_expires_and_what_is_not_known_stays() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        let lines = || {
            let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        metrics.set(Vitals { not_after: None, reloads: 0, mismatch: None });
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 0", "jobset_webhook_cert_reloads_total 0"]);
        let not_after = Some(Timestamp::constant(1_800_000_000, 0));
        metrics.set(Vitals { not_after, reloads: 2, mismatch: Some(true) });
        metrics.set(Vitals { not_after, reloads: 2, mismatch: None });
        let expiry = "jobset_webhook_cert_expiry_timestamp_seconds 1800000000";
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 1", expiry, "jobset_webhook_cert_reloads_total 2"]);
        metrics.set(Vitals { not_after, reloads: 2, mismatch: Some(false) });
        assert_eq!(lines()[0], "jobset_webhook_ca_mismatch 0");
    }
}
