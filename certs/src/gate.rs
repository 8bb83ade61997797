//! When a certificate may take the place of another: once API servers trust it.

use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;

use crate::bundle::{Configuration, LiveBundle};
use crate::material::Serving;
use crate::{Error, Names};

/// How long all live bundles must have trusted a certificate where none is in service yet: little, because it holds up every
/// first start.
const FIRST: Duration = Duration::from_secs(1);

/// The caBundles as the API server has them now.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) bundles: Vec<LiveBundle>,
    /// Whether a configuration could not be read.
    pub(crate) incomplete: bool,
    /// Whether one that could not be read may have webhooks: it is not known to be missing.
    hidden: bool,
}

impl Live {
    /// A configuration could not be read.
    pub(crate) fn lacks(&mut self, error: &Error) {
        self.incomplete = true;
        self.hidden |= !error.is_missing_configuration();
    }

    /// Says that the configurations have no webhooks, if that is known.
    pub(crate) fn without_webhooks(&self, configurations: &[Configuration]) -> Option<String> {
        let names: Vec<_> = configurations.iter().map(ToString::to_string).collect();
        (self.bundles.is_empty() && !self.hidden).then(|| format!("there is no webhook in {}", names.join(", ")))
    }

    /// The first bundle that does not verify this certificate for these names.
    pub(crate) fn distrusting(&self, serving: &Serving, names: &Names, now: Timestamp) -> Option<&LiveBundle> {
        self.bundles.iter().find(|it| !it.trusts(serving, names, now))
    }

    /// Whether all configurations could be read, there are webhooks, and each of them trusts this certificate.
    pub(crate) fn trusts(&self, serving: &Serving, names: &Names, now: Timestamp) -> bool {
        !self.incomplete && !self.bundles.is_empty() && self.distrusting(serving, names, now).is_none()
    }
}

/// Holds one certificate back until it may be served.
#[derive(Debug)]
pub(crate) struct Gate {
    names: Names,
    settle: Duration,
    /// The certificate that waits, and since when all live bundles have been seen to trust it.
    waiting: Option<(CertificateDer<'static>, Instant)>,
}

impl Gate {
    /// A gate for certificates of these names. API servers see a changed caBundle with a delay, which is at most `settle`.
    pub(crate) fn new(names: Names, settle: Duration) -> Self {
        Self { names, settle, waiting: None }
    }

    /// There is nothing that may replace the certificate in service.
    pub(crate) fn withdraw(&mut self) {
        self.waiting = None;
    }

    /// How long the candidate still has to wait before it takes the place of the current certificate; zero: it may now.
    ///
    /// A good certificate is replaced after the next one has been trusted everywhere for a while. One that has expired, or
    /// that API servers do not trust any more while they trust the next, is replaced at once.
    pub(crate) fn wait(
        &mut self,
        current: Option<&Serving>,
        candidate: &Serving,
        live: &Live,
        now: Timestamp,
    ) -> Duration {
        let settle = match current {
            None => FIRST.min(self.settle),
            Some(current) if !current.validity.contains(now) => return Duration::ZERO,
            Some(current) => {
                let distrusts = |it| live.distrusting(it, &self.names, now).is_some();
                if distrusts(current) && !distrusts(candidate) {
                    return Duration::ZERO;
                }
                self.settle
            }
        };
        if !live.trusts(candidate, &self.names, now) {
            self.waiting = None;
            return Duration::MAX;
        }
        let certificate = candidate.certificate();
        if self.waiting.as_ref().map(|(waiting, _)| waiting) != certificate {
            self.waiting = certificate.map(|certificate| (certificate.clone(), Instant::now()));
        }
        self.waiting.as_ref().map_or(Duration::ZERO, |(_, since)| settle.saturating_sub(since.elapsed()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::material::{Material, with_new_serving};
    use crate::{Lifetimes, issue, x509};

    pub(crate) const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const SETTLE: Duration = Duration::from_secs(5);

    pub(crate) fn names() -> Names {
        Names::of_service("hook", "ns").unwrap()
    }

    /// A CA and a certificate of it.
    pub(crate) fn candidate() -> Material {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        Material::read(&with_new_serving(&authority, &names(), ISSUED, &lifetimes).unwrap())
    }

    /// Bundles of which each trusts these.
    pub(crate) fn live(trusted: &[&[&Material]], incomplete: bool) -> Live {
        let pem = |it: &Material| x509::to_pem(&it.authority.as_ref().unwrap().certificate);
        let bundle = |trusted: &&[&Material]| LiveBundle {
            configuration: Configuration::Validating("v".to_owned()),
            webhook: "w".to_owned(),
            pem: trusted.iter().map(|it| pem(it)).collect::<String>().into_bytes(),
        };
        Live { bundles: trusted.iter().map(bundle).collect(), incomplete, hidden: incomplete }
    }

    fn serving(material: &Material) -> &Serving {
        material.serving.as_ref().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_good_certificate_is_replaced_once_the_next_has_been_trusted_everywhere_for_a_while() {
        let (old, new) = (candidate(), candidate());
        let mut gate = Gate::new(names(), SETTLE);
        let mut wait = |live: &Live| gate.wait(Some(serving(&old)), serving(&new), live, ISSUED);
        assert_eq!(wait(&live(&[&[&old, &new], &[&old]], false)), Duration::MAX, "not everywhere");
        assert_eq!(wait(&live(&[&[&old, &new]], true)), Duration::MAX, "not all could be read");
        let both = live(&[&[&old, &new], &[&new, &old]], false);
        assert_eq!(wait(&both), SETTLE);
        tokio::time::advance(SETTLE / 2).await;
        assert_eq!(wait(&both), SETTLE / 2);
        assert_eq!(wait(&live(&[&[&old]], false)), Duration::MAX, "trust is lost");
        assert_eq!(wait(&both), SETTLE, "the wait starts over");
        tokio::time::advance(SETTLE).await;
        assert_eq!(wait(&both), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_trusted_or_has_expired_is_replaced_at_once() {
        let (old, new) = (candidate(), candidate());
        let mut gate = Gate::new(names(), SETTLE);
        let mut wait = |live: &Live, now| gate.wait(Some(serving(&old)), serving(&new), live, now);
        assert_eq!(wait(&live(&[&[&new]], false), ISSUED), Duration::ZERO);
        assert_eq!(wait(&live(&[], true), ISSUED + SignedDuration::from_hours(24 * 91)), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_one_waits_for_webhooks_that_trust_it() {
        let new = candidate();
        let mut gate = Gate::new(names(), SETTLE);
        let mut wait = |live: &Live| gate.wait(None, serving(&new), live, ISSUED);
        assert_eq!(wait(&live(&[], false)), Duration::MAX);
        assert_eq!(wait(&live(&[&[&new], &[]], false)), Duration::MAX);
        assert_eq!(wait(&live(&[&[&new]], false)), FIRST);
        tokio::time::advance(FIRST).await;
        assert_eq!(wait(&live(&[&[&new]], false)), Duration::ZERO);
    }
}
