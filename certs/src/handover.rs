//! When a certificate takes the place of another: once everybody who verifies it has trusted its CA for long enough. Pure.

use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::CertificateDer;

use crate::bundle::{Configuration, LiveBundle};
use crate::issue::Usage;
use crate::material::Serving;
use crate::{Error, Names, x509};

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
    pub(crate) hidden: bool,
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

/// The certificate in service, as those who verify it see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InService {
    Good,
    /// There is none, and nobody may hear of the first before it is trusted.
    Missing,
    /// There is nothing to lose: it has expired, or they trust its CA no longer.
    Useless,
}

impl InService {
    /// As API servers see it, which verify it by these caBundles. One that they do not trust is of use until they trust the
    /// candidate.
    pub(crate) fn of(
        current: Option<&Serving>,
        candidate: &Serving,
        live: &Live,
        names: &Names,
        now: Timestamp,
    ) -> Self {
        let distrusts = |it| live.distrusting(it, names, now).is_some();
        match current {
            None => Self::Missing,
            Some(it) if !it.validity.contains(now) || distrusts(it) && !distrusts(candidate) => Self::Useless,
            Some(_) => Self::Good,
        }
    }

    /// As those see it who have these CAs mounted beside it. None before it is as good as useless.
    pub(crate) fn of_mounted(
        current: Option<&Serving>,
        usage: Usage,
        trusted: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Self {
        let is_good = current.is_some_and(|it| x509::is_verified(&it.certified.cert, trusted, usage, now));
        if is_good { Self::Good } else { Self::Useless }
    }

    /// How long the next certificate still has to wait before it takes the place of this one; zero: it may now. `since` is when
    /// everybody began to trust it, and a good one is replaced after `lead`.
    pub(crate) fn wait(self, since: Option<Timestamp>, lead: Duration, now: Timestamp) -> Duration {
        let lead = match self {
            Self::Good => lead,
            Self::Missing => lead.min(FIRST),
            Self::Useless => return Duration::ZERO,
        };
        since.map_or(Duration::MAX, |since| lead.saturating_sub(elapsed(since, now)))
    }
}

/// How long ago that was; zero where it is still to come.
pub(crate) fn elapsed(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}

/// Since when everybody has trusted something, given what was known before, and whether they do now: `None` where that cannot
/// be told. A time that is still to come was noted by a clock that was wrong.
pub(crate) fn since(before: Option<Timestamp>, is_trusted: Option<bool>, now: Timestamp) -> Option<Timestamp> {
    match is_trusted {
        Some(true) => Some(before.map_or(now, |before| before.min(now))),
        Some(false) => None,
        None => before,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;
    use crate::material::{Material, with_new_leaf, with_new_serving};
    use crate::{Lifetimes, issue};

    pub(crate) const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const LEAD: Duration = Duration::from_hours(1);

    fn at(minutes: i64) -> Timestamp {
        ISSUED + SignedDuration::from_mins(minutes)
    }

    fn names() -> Names {
        Names::of_service("hook", "ns").unwrap()
    }

    /// A CA and a certificate of it.
    pub(crate) fn candidate() -> Material {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        Material::read(&with_new_serving(&authority, &names(), ISSUED, &lifetimes).unwrap())
    }

    fn live(trusted: &[&[&Material]]) -> Live {
        let pem = |it: &Material| x509::to_pem(&it.authority.as_ref().unwrap().certificate);
        let bundle = |trusted: &&[&Material]| LiveBundle {
            configuration: Configuration::Validating("v".to_owned()),
            webhook: "w".to_owned(),
            pem: trusted.iter().map(|it| pem(it)).collect::<String>().into_bytes(),
        };
        Live { bundles: trusted.iter().map(bundle).collect(), ..Live::default() }
    }

    fn serving(material: &Material) -> &Serving {
        material.serving.as_ref().unwrap()
    }

    #[rstest]
    #[case::good_just_trusted(InService::Good, Some(at(0)), LEAD)]
    #[case::good_trusted_half_an_hour(InService::Good, Some(at(-30)), Duration::from_mins(30))]
    #[case::good_trusted_an_hour(InService::Good, Some(at(-60)), Duration::ZERO)]
    #[case::good_not_trusted_everywhere(InService::Good, None, Duration::MAX)]
    #[case::first_just_trusted(InService::Missing, Some(at(0)), FIRST)]
    #[case::first_trusted_a_minute(InService::Missing, Some(at(-1)), Duration::ZERO)]
    #[case::first_not_trusted_everywhere(InService::Missing, None, Duration::MAX)]
    #[case::useless_not_trusted_everywhere(InService::Useless, None, Duration::ZERO)]
    fn certificate_waits_for_what_it_replaces(
        #[case] current: InService,
        #[case] since: Option<Timestamp>,
        #[case] expected: Duration,
    ) {
        assert_eq!(current.wait(since, LEAD, ISSUED), expected);
    }

    #[rstest]
    #[case::for_the_first_time(None, Some(true), Some(at(0)))]
    #[case::as_before(Some(at(-30)), Some(true), Some(at(-30)))]
    #[case::lost(Some(at(-30)), Some(false), None)]
    #[case::unreadable_for_a_moment(Some(at(-30)), None, Some(at(-30)))]
    #[case::never_readable(None, None, None)]
    #[case::noted_by_a_clock_ahead(Some(at(600)), Some(true), Some(at(0)))]
    fn time_of_trust_counts_from_the_last_loss(
        #[case] before: Option<Timestamp>,
        #[case] is_trusted: Option<bool>,
        #[case] expected: Option<Timestamp>,
    ) {
        assert_eq!(since(before, is_trusted, ISSUED), expected);
    }

    #[test]
    fn certificate_is_useless_once_expired_or_trusted_less_than_candidate() {
        let (old, new) = (candidate(), candidate());
        let of = |live: &Live, now| InService::of(Some(serving(&old)), serving(&new), live, &names(), now);
        assert_eq!(of(&live(&[&[&old, &new], &[&old]]), ISSUED), InService::Good);
        assert_eq!(of(&live(&[&[&new], &[&old]]), ISSUED), InService::Good, "nor is the candidate");
        assert_eq!(of(&live(&[&[&new], &[&old, &new]]), ISSUED), InService::Useless);
        assert_eq!(of(&live(&[]), at(91 * 24 * 60)), InService::Useless);
        assert_eq!(InService::of(None, serving(&new), &live(&[]), &names(), ISSUED), InService::Missing);
    }

    #[test]
    fn certificate_is_trusted_where_every_readable_bundle_verifies_it() {
        let (old, new) = (candidate(), candidate());
        let trusts = |live: &Live| live.trusts(serving(&new), &names(), ISSUED);
        assert!(trusts(&live(&[&[&old, &new], &[&new]])));
        assert!(!trusts(&live(&[&[&old, &new], &[&old]])));
        assert!(!trusts(&live(&[])), "no webhook");
        assert!(!trusts(&Live { incomplete: true, ..live(&[&[&new]]) }));
    }

    /// A CA, and a client's certificate of it.
    fn client() -> (CertificateDer<'static>, Serving) {
        let (names, lifetimes) = (Names::of_host("controller", "ns").unwrap(), Lifetimes::default());
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        let data = with_new_leaf(&authority, Usage::Client, &names, ISSUED, &lifetimes).unwrap();
        assert!(Material::read(&data).serving.is_err(), "a server does not take it");
        let Material { authority, serving } = Material::read_for(&data, Usage::Client);
        (authority.unwrap().certificate, serving.unwrap())
    }

    #[test]
    fn mounted_certificate_is_useless_once_expired_missing_or_distrusted() {
        let ((before, current), (authority, _)) = (client(), client());
        let of = |current, usage, trusted: &[_], now| InService::of_mounted(current, usage, trusted, now);
        let both = [authority.clone(), before];
        assert_eq!(of(Some(&current), Usage::Client, &both, ISSUED), InService::Good);
        assert_eq!(of(Some(&current), Usage::Server, &both, ISSUED), InService::Useless, "it has one purpose");
        assert_eq!(of(None, Usage::Client, &both, ISSUED), InService::Useless);
        assert_eq!(of(Some(&current), Usage::Client, &[authority], ISSUED), InService::Useless);
        assert_eq!(of(Some(&current), Usage::Client, &both, at(91 * 24 * 60)), InService::Useless);
    }
}
