//! Certificates of programs that know each other by mounted Secrets: no caBundle says whom they trust, but the `ca.crt` beside
//! each certificate.
//!
//! ```text
//! ca.crt with the CA and those before --> certificates of the CA --> ca.crt with the CA alone
//! ```
//!
//! Kubelets refresh their mounts within minutes, so each step gives readers the time to see the one before. Decides, and is
//! pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls_pki_types::CertificateDer;

use crate::issue::Usage;
use crate::material::{CA_CERTIFICATES, Data, Serving};
use crate::policy;
use crate::x509::{self, Validity};

/// How long until this many times the settle time have passed since the CA was issued.
pub(crate) fn settles_in(authority: Validity, settle: Duration, times: u32, now: Timestamp) -> Duration {
    let age = Duration::try_from(now.duration_since(policy::issued(authority))).unwrap_or_default();
    settle.saturating_mul(times).saturating_sub(age)
}

/// What a Secret is to hold at least: the CAs in `trusted`, and the data of the candidate once `settles_in` is zero.
///
/// A current certificate that `trusted` does not verify has expired, or its CA is distrusted: it is replaced at once.
pub(crate) fn due(
    usage: Usage,
    current: Option<&Serving>,
    candidate: &Data,
    trusted: &[CertificateDer<'static>],
    settles_in: Duration,
    now: Timestamp,
) -> Data {
    let stays = |it: &Serving| !settles_in.is_zero() && x509::is_verified(&it.certified.cert, trusted, usage, now);
    let mut due = if current.is_some_and(stays) { Data::new() } else { candidate.clone() };
    let authorities: String = trusted.iter().map(x509::to_pem).collect();
    due.insert(CA_CERTIFICATES.to_owned(), ByteString(authorities.into_bytes()));
    due
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::material::{Authority, CERTIFICATE, Material, with_new_leaf};
    use crate::{Lifetimes, Names, issue};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const SETTLE: Duration = Duration::from_mins(3);

    /// A CA, and the data of a client's certificate of it.
    fn client() -> (Authority, Data) {
        let (names, lifetimes) = (Names::of_host("controller", "ns").unwrap(), Lifetimes::default());
        let authority = issue::authority(NOW, &lifetimes).unwrap();
        let data = with_new_leaf(&authority, Usage::Client, &names, NOW, &lifetimes).unwrap();
        (Material::read(&data).authority.unwrap(), data)
    }

    fn leaf(data: &Data) -> Serving {
        Material::read_for(data, Usage::Client).serving.unwrap()
    }

    #[test]
    fn ca_rotated_is_published_before_its_certificate_is_handed_out() {
        let ((before, old), (authority, new)) = (client(), client());
        let (current, trusted) = (leaf(&old), [authority.certificate, before.certificate]);
        let due = |wait| due(Usage::Client, Some(&current), &new, &trusted, wait, NOW);
        let waits = due(SETTLE);
        assert_eq!(x509::certificates(&waits[CA_CERTIFICATES].0), trusted);
        assert!(!waits.contains_key(CERTIFICATE), "the certificate stays: {waits:?}");
        let settled = due(Duration::ZERO);
        assert_eq!(settled[CERTIFICATE], new[CERTIFICATE]);
        assert_eq!(x509::certificates(&settled[CA_CERTIFICATES].0), trusted);
    }

    #[test]
    fn certificate_missing_distrusted_or_expired_is_replaced_at_once() {
        let ((before, old), (authority, new)) = (client(), client());
        let current = leaf(&old);
        let due = |current, trusted: &[_], now| due(Usage::Client, current, &new, trusted, SETTLE, now);
        let both = [authority.certificate.clone(), before.certificate];
        let expired = NOW + jiff::SignedDuration::from_hours(24 * 91);
        for due in [
            due(None, &both, NOW),
            due(Some(&current), std::slice::from_ref(&authority.certificate), NOW),
            due(Some(&current), &both, expired),
        ] {
            assert_eq!(due[CERTIFICATE], new[CERTIFICATE]);
        }
    }

    #[test]
    fn certificate_of_client_is_good_for_no_server() {
        let (authority, data) = client();
        let (chain, authorities) = (leaf(&data).certified.cert.clone(), [authority.certificate]);
        assert!(x509::is_verified(&chain, &authorities, Usage::Client, NOW));
        assert!(!x509::is_verified(&chain, &authorities, Usage::Server, NOW));
        assert!(Material::read(&data).serving.is_err(), "a server does not take it");
    }

    #[test]
    fn settle_time_counts_from_the_issue_of_the_ca() {
        let authority = client().0.validity;
        let at = |seconds, times| settles_in(authority, SETTLE, times, NOW + jiff::SignedDuration::from_secs(seconds));
        assert_eq!([at(0, 1), at(60, 1), at(180, 1)].map(|it| it.as_secs()), [180, 120, 0]);
        assert_eq!([at(180, 2), at(360, 2), at(-60, 1)].map(|it| it.as_secs()), [180, 0, 180]);
    }
}
