//! The certificate in service: when another takes its place, and whether the service can be called with it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tracing::info;

use crate::bundle::{Configuration, LiveBundle};
use crate::material::Serving;
use crate::metrics::Vitals;
use crate::{Names, Readiness, Resolver};

/// A certificate that may be put into service.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) serving: Serving,
    /// CAs that came with it.
    pub(crate) authorities: Vec<CertificateDer<'static>>,
}

/// The caBundles as the API server has them now.
#[derive(Debug, Default)]
pub(crate) struct Live {
    pub(crate) bundles: Vec<LiveBundle>,
    /// Whether all configurations could be read.
    pub(crate) complete: bool,
    /// Whether one that could not be read may have webhooks: it is not known to be missing.
    pub(crate) hidden: bool,
}

/// The certificate in service, if there is one yet.
pub(crate) struct InService {
    resolver: Arc<Resolver>,
    names: Names,
    settle: Duration,
    propagation: Duration,
    current: Option<Candidate>,
    /// How often another took the place of the one in service.
    reloads: u64,
    /// The certificate that waits to be put into service, and since when all live bundles have been seen to trust it.
    waiting: Option<(CertificateDer<'static>, Instant)>,
    /// Since when, without a break, all live bundles have been seen to trust the one in service.
    trusted_since: Option<Instant>,
    /// Whether they had long enough, and none has been seen since that does not.
    ready: bool,
}

impl InService {
    /// Nothing yet. `settle` and `propagation` are those of [`crate::Settings`].
    pub(crate) fn new(resolver: Arc<Resolver>, names: Names, settle: Duration, propagation: Duration) -> Self {
        Self {
            resolver,
            names,
            settle,
            propagation,
            current: None,
            reloads: 0,
            waiting: None,
            trusted_since: None,
            ready: false,
        }
    }

    /// CAs that came with the certificate in service.
    pub(crate) fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.current.as_ref().map(|it| it.authorities.clone()).unwrap_or_default()
    }

    /// Whether there is one that has not expired.
    pub(crate) fn is_valid(&self, now: Timestamp) -> bool {
        self.current.as_ref().is_some_and(|it| it.serving.validity.contains(now))
    }

    /// There is nothing at present that may replace the certificate in service.
    pub(crate) fn withdraw(&mut self) {
        self.waiting = None;
    }

    /// Puts the certificate into service where there is none: there is nothing to lose.
    pub(crate) fn begin(&mut self, candidate: &Candidate) {
        if self.current.is_none() {
            self.serve(candidate.clone());
        }
    }

    /// Replaces the certificate in service by this one when it is time. Returns when it will be.
    pub(crate) fn offer(&mut self, candidate: &Candidate, live: &Live, now: Timestamp) -> Duration {
        self.begin(candidate);
        let Some(current) = &self.current else { return Duration::MAX };
        if current.serving.certificate() == candidate.serving.certificate() {
            self.waiting = None;
            return Duration::MAX;
        }
        let is_trusted =
            |it: &Candidate| live.bundles.iter().all(|bundle| bundle.trusts(&it.serving, &self.names, now));
        let wait = if !self.is_valid(now) || (!is_trusted(current) && is_trusted(candidate)) {
            Duration::ZERO
        } else if live.complete && is_trusted(candidate) {
            let certificate = candidate.serving.certificate();
            if self.waiting.as_ref().map(|(waiting, _)| waiting) != certificate {
                self.waiting = certificate.map(|certificate| (certificate.clone(), Instant::now()));
            }
            self.waiting.as_ref().map_or(Duration::ZERO, |(_, since)| self.settle.saturating_sub(since.elapsed()))
        } else {
            self.waiting = None;
            Duration::MAX
        };
        if wait.is_zero() {
            self.serve(candidate.clone());
            return Duration::MAX;
        }
        wait
    }

    fn serve(&mut self, candidate: Candidate) {
        let serving = &candidate.serving;
        self.resolver.serve(Arc::clone(&serving.certified));
        self.waiting = None;
        self.reloads += u64::from(self.current.is_some());
        info!(not_after = %serving.validity.not_after, names = %serving.names, "put a certificate into service");
        self.current = Some(candidate);
    }

    /// Whether API servers can call the service, and when that will change if nothing else does. What could not be read
    /// says nothing: while the service was ready it stays so, and else it waits.
    pub(crate) fn readiness(
        &mut self,
        live: &Live,
        configurations: &[Configuration],
        now: Timestamp,
    ) -> (Readiness, Duration) {
        let reason = self.distrust(live, configurations, now);
        self.ready &= reason.is_none();
        if self.ready {
            return (Readiness::Ready, Duration::MAX);
        }
        let unread = || (!live.complete).then(|| "not all configurations can be read".to_owned());
        if let Some(reason) = reason.or_else(unread) {
            self.trusted_since = None;
            return (Readiness::NotReady(reason), Duration::MAX);
        }
        let since = *self.trusted_since.get_or_insert_with(Instant::now);
        let wait = self.propagation.saturating_sub(since.elapsed());
        if wait.is_zero() {
            self.ready = true;
            return (Readiness::Ready, Duration::MAX);
        }
        (Readiness::NotReady("waiting until all API servers have seen the caBundle".to_owned()), wait)
    }

    /// Why API servers cannot call the service, if they cannot.
    fn distrust(&self, live: &Live, configurations: &[Configuration], now: Timestamp) -> Option<String> {
        let Some(current) = &self.current else { return Some("no certificate is in service".to_owned()) };
        let validity = current.serving.validity;
        if now > validity.not_after {
            return Some(format!("the certificate in service expired at {}", validity.not_after));
        }
        if live.bundles.is_empty() && !live.hidden {
            let configurations: Vec<_> = configurations.iter().map(ToString::to_string).collect();
            return Some(format!("there is no webhook in {}", configurations.join(", ")));
        }
        self.distrusting(current, live, now).map(|it| {
            format!(
                "the caBundle of webhook {} in {} does not verify the serving certificate",
                it.webhook, it.configuration
            )
        })
    }

    fn distrusting<'a>(&self, current: &Candidate, live: &'a Live, now: Timestamp) -> Option<&'a LiveBundle> {
        live.bundles.iter().find(|it| !it.trusts(&current.serving, &self.names, now))
    }

    /// What the metrics tell. Whether all bundles verify the certificate is not known while one cannot be read.
    pub(crate) fn vitals(&self, live: &Live, now: Timestamp) -> Vitals {
        let validity = self.current.as_ref().map(|it| it.serving.validity);
        let mismatch = self.current.as_ref().is_some_and(|it| self.distrusting(it, live, now).is_some());
        Vitals { validity, reloads: self.reloads, mismatch: (mismatch || live.complete).then_some(mismatch) }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::material::{self, Material};
    use crate::{Lifetimes, issue, x509};

    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const SETTLE: Duration = Duration::from_secs(5);
    const PROPAGATION: Duration = Duration::from_secs(1);

    fn names() -> Names {
        Names::of_service("hook", "ns").unwrap()
    }

    fn candidate() -> Candidate {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        let data = material::with_new_serving(&authority, &[], &names(), ISSUED, &lifetimes).unwrap();
        let material = Material::read(&data);
        Candidate { authorities: material.authorities(), serving: material.serving.unwrap() }
    }

    /// Bundles of which each trusts these.
    fn live(trusted: &[&[&Candidate]], complete: bool) -> Live {
        let pem = |it: &Candidate| it.authorities.iter().map(x509::to_pem).collect::<String>();
        let bundle = |trusted: &&[&Candidate]| LiveBundle {
            configuration: Configuration::Validating("v".to_owned()),
            webhook: "w".to_owned(),
            pem: trusted.iter().map(|it| pem(it)).collect::<String>().into_bytes(),
        };
        Live { bundles: trusted.iter().map(bundle).collect(), complete, hidden: !complete }
    }

    fn serves(it: &InService, candidate: &Candidate) -> bool {
        it.resolver.current().unwrap().cert.first() == candidate.serving.certificate()
    }

    fn in_service(candidate: &Candidate) -> InService {
        let mut it = InService::new(Arc::default(), names(), SETTLE, PROPAGATION);
        it.offer(candidate, &Live::default(), ISSUED);
        assert!(serves(&it, candidate), "the first one at once");
        it
    }

    #[tokio::test(start_paused = true)]
    async fn a_good_certificate_is_replaced_once_the_next_has_been_trusted_everywhere_for_a_while() {
        let (old, new) = (candidate(), candidate());
        let mut it = in_service(&old);
        assert_eq!(it.offer(&new, &live(&[&[&old, &new], &[&old]], true), ISSUED), Duration::MAX, "not everywhere");
        let both = live(&[&[&old, &new], &[&new, &old]], true);
        assert_eq!(it.offer(&new, &both, ISSUED), SETTLE);
        tokio::time::advance(SETTLE / 2).await;
        assert_eq!(it.offer(&new, &both, ISSUED), SETTLE / 2);
        assert!(serves(&it, &old));
        tokio::time::advance(SETTLE / 2).await;
        it.offer(&new, &both, ISSUED);
        assert!(serves(&it, &new));
    }

    #[tokio::test(start_paused = true)]
    async fn trust_that_was_lost_meanwhile_is_waited_for_anew() {
        let (old, new) = (candidate(), candidate());
        let mut it = in_service(&old);
        let both = live(&[&[&old, &new]], true);
        it.offer(&new, &both, ISSUED);
        tokio::time::advance(SETTLE / 2).await;
        it.offer(&new, &live(&[&[&old]], true), ISSUED);
        assert_eq!(it.offer(&new, &both, ISSUED), SETTLE);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_not_trusted_or_has_expired_is_replaced_at_once() {
        let (old, new) = (candidate(), candidate());
        let mut it = in_service(&old);
        it.offer(&new, &live(&[&[&new]], true), ISSUED);
        assert!(serves(&it, &new), "the old one is not trusted");
        let mut it = in_service(&old);
        let later = ISSUED + SignedDuration::from_hours(24 * 91);
        it.offer(&new, &live(&[], false), later);
        assert!(serves(&it, &new), "the old one has expired, whatever could not be read");
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_configuration_cannot_be_read_a_good_one_stays() {
        let (old, new) = (candidate(), candidate());
        let mut it = in_service(&old);
        assert_eq!(it.offer(&new, &live(&[&[&old, &new]], false), ISSUED), Duration::MAX);
        tokio::time::advance(SETTLE * 2).await;
        it.offer(&new, &live(&[&[&old, &new]], false), ISSUED);
        assert!(serves(&it, &old));
    }

    #[tokio::test(start_paused = true)]
    async fn ready_is_what_every_bundle_has_verified_for_a_moment() {
        let configurations = [Configuration::Validating("v".to_owned())];
        let (own, other) = (candidate(), candidate());
        let mut it = in_service(&own);
        let good = live(&[&[&own], &[&own, &other]], true);
        let mut ask = |live: &Live, now| it.readiness(live, &configurations, now);
        assert!(
            matches!(ask(&good, ISSUED), (Readiness::NotReady(reason), PROPAGATION) if reason.contains("have seen"))
        );
        tokio::time::advance(PROPAGATION).await;
        assert_eq!(ask(&good, ISSUED).0, Readiness::Ready);
        let bad = [
            (live(&[], true), ISSUED, "there is no webhook in"),
            (live(&[&[&own], &[&other]], true), ISSUED, "does not verify"),
            (live(&[&[&own], &[]], true), ISSUED, "does not verify"),
            (live(&[&[&own]], true), ISSUED + SignedDuration::from_hours(24 * 91), "expired at"),
        ];
        for (live, now, text) in bad {
            let (Readiness::NotReady(reason), _) = ask(&live, now) else { panic!("ready although {text}") };
            assert!(reason.contains(text), "{reason}");
            assert_eq!(ask(&good, ISSUED).1, PROPAGATION, "and from the beginning");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn reloads_and_bundles_that_do_not_verify_are_told() {
        let (old, new) = (candidate(), candidate());
        let mut it = InService::new(Arc::default(), names(), SETTLE, PROPAGATION);
        let vitals = |it: &InService, live: &Live| {
            let Vitals { validity, reloads, mismatch } = it.vitals(live, ISSUED);
            (validity.is_some(), reloads, mismatch)
        };
        let (good, bad) = (live(&[&[&old, &new]], true), live(&[&[&new], &[&old, &new]], true));
        assert_eq!(vitals(&it, &good), (false, 0, Some(false)), "nothing is in service yet");
        it.begin(&old);
        assert_eq!(vitals(&it, &good), (true, 0, Some(false)), "the first takes nobody's place");
        assert_eq!(vitals(&it, &bad), (true, 0, Some(true)));
        assert_eq!(vitals(&it, &live(&[&[&old]], false)), (true, 0, None), "another could not be read");
        assert_eq!(vitals(&it, &live(&[&[&new]], false)), (true, 0, Some(true)), "one is enough");
        it.offer(&new, &bad, ISSUED);
        it.offer(&new, &bad, ISSUED);
        assert_eq!(vitals(&it, &bad), (true, 1, Some(false)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_changes_nothing_and_hides_nothing() {
        let configurations = [Configuration::Validating("v".to_owned())];
        let (own, other) = (candidate(), candidate());
        let mut it = in_service(&own);
        let good = live(&[&[&own]], true);
        let mut ask = |live: &Live| it.readiness(live, &configurations, ISSUED);
        ask(&good);
        tokio::time::advance(PROPAGATION / 2).await;
        let blind = live(&[&[&own]], false);
        assert!(matches!(ask(&blind).0, Readiness::NotReady(reason) if reason.contains("can be read")));
        tokio::time::advance(PROPAGATION).await;
        assert_eq!(ask(&good).1, PROPAGATION, "from the beginning");
        tokio::time::advance(PROPAGATION).await;
        for seen in [&good, &blind, &live(&[], false), &good] {
            assert_eq!(ask(seen).0, Readiness::Ready);
        }
        let missing = Live { bundles: Vec::new(), complete: false, hidden: false };
        for distrust in [live(&[&[&other]], false), live(&[&[&own], &[]], false), missing] {
            assert!(matches!(ask(&distrust).0, Readiness::NotReady(_)), "{distrust:?}");
            assert_eq!(ask(&live(&[], false)).1, Duration::MAX);
            assert_eq!(ask(&good).1, PROPAGATION, "from the beginning");
            tokio::time::advance(PROPAGATION).await;
            assert_eq!(ask(&good).0, Readiness::Ready);
        }
    }
}
