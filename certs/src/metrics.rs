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
    /// Where the server looks at the caBundles itself.
    mismatch: Option<IntGauge>,
}

/// The gauge that is 1 while a live caBundle does not verify the serving certificate.
pub fn mismatch(registry: &Registry) -> prometheus::Result<IntGauge> {
    let gauge = IntGauge::new(
        "jobset_webhook_ca_mismatch",
        "1 while a live caBundle does not verify the serving certificate: API servers cannot call the admission service.",
    )?;
    registry.register(Box::new(gauge.clone()))?;
    Ok(gauge)
}

impl Metrics {
    /// Registers them. That of the caBundles only where `looks_at_bundles` says so.
    pub fn register(registry: &Registry, looks_at_bundles: bool) -> prometheus::Result<Self> {
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
            mismatch: if looks_at_bundles { Some(mismatch(registry)?) } else { None },
        };
        registry.register(Box::new(metrics.expiry.clone()))?;
        registry.register(Box::new(metrics.beginning.clone()))?;
        registry.register(Box::new(metrics.reloads.clone()))?;
        Ok(metrics)
    }

    /// From when until when the certificate in service is valid, how often another took its place, and whether a live
    /// caBundle does not verify it, if that is known.
    pub(crate) fn set(&self, validity: Option<Validity>, reloads: u64, mismatch: Option<bool>) {
        if let Some(Validity { not_before, not_after }) = validity {
            self.expiry.with_label_values::<&str>(&[]).set(not_after.as_second());
            self.beginning.with_label_values::<&str>(&[]).set(not_before.as_second());
        }
        self.reloads.inc_by(reloads.saturating_sub(self.reloads.get()));
        if let (Some(gauge), Some(mismatch)) = (&self.mismatch, mismatch) {
            gauge.set(mismatch.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn expiry_metrics_without_certificate_keep_their_value() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry, true).unwrap();
        let lines = || {
            let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        metrics.set(None, 0, None);
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 0", "jobset_webhook_cert_reloads_total 0"]);
        let [not_before, not_after] = [1_700_000_000, 1_800_000_000].map(|seconds| Timestamp::constant(seconds, 0));
        let validity = Some(Validity { not_before, not_after });
        metrics.set(validity, 2, Some(true));
        metrics.set(validity, 2, None);
        let expiry = "jobset_webhook_cert_expiry_timestamp_seconds 1800000000";
        let begins = "jobset_webhook_cert_not_before_timestamp_seconds 1700000000";
        assert_eq!(lines(), ["jobset_webhook_ca_mismatch 1", expiry, begins, "jobset_webhook_cert_reloads_total 2"]);
        metrics.set(validity, 2, Some(false));
        assert_eq!(lines()[0], "jobset_webhook_ca_mismatch 0");
    }
}
