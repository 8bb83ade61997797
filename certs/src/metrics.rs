//! What is measured of the certificate in service.

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

use crate::x509::Validity;

/// The owner's handles.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// Without a series until there is a certificate: one that expires in 1970 would raise alarms.
    expiry: IntGaugeVec,
    /// As the former.
    beginning: IntGaugeVec,
    reloads: IntCounter,
    mismatch: IntGauge,
}

/// What there is to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vitals {
    /// From when until when the certificate in service is valid.
    pub(crate) validity: Option<Validity>,
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
        let beginning = Opts::new(
            "jobset_webhook_cert_not_before_timestamp_seconds",
            "From when on the serving certificate is valid, in seconds since the epoch.",
        );
        let metrics = Self {
            expiry: IntGaugeVec::new(expiry, &[])?,
            beginning: IntGaugeVec::new(beginning, &[])?,
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
        registry.register(Box::new(metrics.beginning.clone()))?;
        registry.register(Box::new(metrics.reloads.clone()))?;
        registry.register(Box::new(metrics.mismatch.clone()))?;
        Ok(metrics)
    }

    pub(crate) fn set(&self, vitals: Vitals) {
        if let Some(Validity { not_before, not_after }) = vitals.validity {
            self.expiry.with_label_values::<&str>(&[]).set(not_after.as_second());
            self.beginning.with_label_values::<&str>(&[]).set(not_before.as_second());
        }
        self.reloads.inc_by(vitals.reloads.saturating_sub(self.reloads.get()));
        if let Some(mismatch) = vitals.mismatch {
            self.mismatch.set(mismatch.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
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
        metrics.set(Vitals { validity: None, reloads: 0, mismatch: None });
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 0", "jobset_webhook_cert_reloads_total 0"]);
        let [not_before, not_after] = [1_700_000_000, 1_800_000_000].map(|seconds| Timestamp::constant(seconds, 0));
        let validity = Some(Validity { not_before, not_after });
        metrics.set(Vitals { validity, reloads: 2, mismatch: Some(true) });
        metrics.set(Vitals { validity, reloads: 2, mismatch: None });
        let expiry = "jobset_webhook_cert_expiry_timestamp_seconds 1800000000";
        let begins = "jobset_webhook_cert_not_before_timestamp_seconds 1700000000";
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 1", expiry, begins, "jobset_webhook_cert_reloads_total 2"]);
        metrics.set(Vitals { validity, reloads: 2, mismatch: Some(false) });
        assert_eq!(lines()[0], "jobset_webhook_ca_mismatch 0");
    }
}
