//! Decides whether the Secret can stay as it is. Pure: the clock and the Secret's contents come in as values.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use crate::material::{Defect, Material};
use crate::x509::Validity;
use crate::{Lifetimes, Names};

/// What to do about the Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing before that time.
    Keep(Timestamp),
    /// Issue a new serving certificate from the CA that is there.
    Reissue(Cause),
    /// Issue a new CA, and a serving certificate from it.
    RotateCa(Cause),
}

/// Why something has to be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is missing or unusable.
    Defect(Defect),
    /// It is no longer valid.
    Expired,
    /// It is not valid yet: somebody's clock is wrong.
    NotYetValid,
    /// It will expire before long.
    Due,
    /// The certificate lacks these names.
    Names(Names),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defect(defect) => defect.fmt(f),
            Self::Expired => f.write_str("expired"),
            Self::NotYetValid => f.write_str("not yet valid"),
            Self::Due => f.write_str("expires before long"),
            Self::Names(missing) => write!(f, "not valid for {missing}"),
        }
    }
}

/// Decides what to do about the Secret's contents.
///
/// A CA is due when it could not outlive a serving certificate issued now, a serving certificate when a third of its
/// lifetime is left. Extra names do no harm: two versions of the service that want different names, as during a rolling
/// update, would otherwise replace each other's certificates for as long as both run.
pub fn decide(material: &Material, names: &Names, lifetimes: &Lifetimes, now: Timestamp) -> Decision {
    let authority = match &material.authority {
        Ok(authority) => authority.validity,
        Err(defect) => return Decision::RotateCa(Cause::Defect(*defect)),
    };
    let authority_due = before(authority.not_after, lifetimes.serving());
    if let Some(cause) = aged(authority, authority_due, now) {
        return Decision::RotateCa(cause);
    }
    let serving = match &material.serving {
        Ok(serving) => serving,
        Err(defect) => return Decision::Reissue(Cause::Defect(*defect)),
    };
    let serving_due = before(serving.validity.not_after, lifetimes.serving() / 3);
    if let Some(cause) = aged(serving.validity, serving_due, now) {
        return Decision::Reissue(cause);
    }
    let missing = names.missing_from(&serving.names);
    if !missing.is_empty() {
        return Decision::Reissue(Cause::Names(missing));
    }
    Decision::Keep(authority_due.min(serving_due))
}

fn aged(validity: Validity, due: Timestamp, now: Timestamp) -> Option<Cause> {
    if now < validity.not_before {
        Some(Cause::NotYetValid)
    } else if now > validity.not_after {
        Some(Cause::Expired)
    } else if now >= due {
        Some(Cause::Due)
    } else {
        None
    }
}

fn before(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use rstest::rstest;

    use super::*;
    use crate::issue;
    use crate::material::{self, CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY};

    type Data = BTreeMap<String, ByteString>;

    /// A fixed moment; the issue of everything below.
    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn names() -> Names {
        Names::of_service("hook", "ns").unwrap()
    }

    fn issue() -> Data {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        material::with_new_serving(&authority, &[], &names(), ISSUED, &lifetimes).unwrap()
    }

    /// A serving certificate and key of a CA that is not the one in the Secret.
    fn foreign(data: &mut Data) {
        let other = issue();
        for entry in [CERTIFICATE, KEY] {
            data.insert(entry.to_owned(), other[entry].clone());
        }
    }

    fn set(data: &mut Data, entry: &str, value: &[u8]) {
        data.insert(entry.to_owned(), ByteString(value.to_vec()));
    }

    fn decide_at(data: &Data, day: i64) -> Decision {
        let now = ISSUED + jiff::SignedDuration::from_hours(day * 24);
        decide(&Material::read(data), &names(), &Lifetimes::default(), now)
    }

    fn reissue(defect: Defect) -> Decision {
        Decision::Reissue(Cause::Defect(defect))
    }

    fn rotate(defect: Defect) -> Decision {
        Decision::RotateCa(Cause::Defect(defect))
    }

    #[rstest]
    #[case::just_issued(0, None)]
    #[case::two_thirds_of_the_serving_certificate(59, None)]
    #[case::a_third_of_the_serving_certificate_is_left(61, Some(Decision::Reissue(Cause::Due)))]
    #[case::serving_certificate_expired(91, Some(Decision::Reissue(Cause::Expired)))]
    #[case::ca_cannot_outlive_another_serving_certificate(276, Some(Decision::RotateCa(Cause::Due)))]
    #[case::ca_expired(366, Some(Decision::RotateCa(Cause::Expired)))]
    #[case::clock_turned_back(-1, Some(Decision::RotateCa(Cause::NotYetValid)))]
    fn age_decides_what_is_issued(#[case] day: i64, #[case] expected: Option<Decision>) {
        let decision = decide_at(&issue(), day);
        match expected {
            Some(expected) => assert_eq!(decision, expected),
            None => assert!(matches!(decision, Decision::Keep(_)), "{decision:?}"),
        }
    }

    #[test]
    fn what_is_kept_is_looked_at_again_when_it_is_due() {
        let Decision::Keep(until) = decide_at(&issue(), 0) else { panic!("not kept") };
        let days = until.duration_since(ISSUED).as_secs() / 86_400;
        assert!((59..=60).contains(&days), "{days}");
    }

    #[rstest]
    #[case::empty(|data: &mut Data| data.clear(), rotate(Defect::Missing(CA_CERTIFICATES)))]
    #[case::no_ca_key(|data: &mut Data| drop(data.remove(CA_KEY)), rotate(Defect::Missing(CA_KEY)))]
    #[case::empty_ca(|data: &mut Data| set(data, CA_CERTIFICATES, b""), rotate(Defect::Missing(CA_CERTIFICATES)))]
    #[case::ca_is_not_pem(|data: &mut Data| set(data, CA_CERTIFICATES, b"\xff\x00"), rotate(Defect::Malformed(CA_CERTIFICATES)))]
    #[case::ca_key_is_not_text(|data: &mut Data| set(data, CA_KEY, b"\xff"), rotate(Defect::Malformed(CA_KEY)))]
    #[case::ca_key_of_another(|data: &mut Data| { let key = issue()[CA_KEY].clone(); data.insert(CA_KEY.into(), key); }, rotate(Defect::KeyMismatch(CA_KEY)))]
    #[case::ca_is_a_serving_certificate(|data: &mut Data| { let it = data[CERTIFICATE].clone(); data.insert(CA_CERTIFICATES.into(), it); }, rotate(Defect::NotAnAuthority(CA_CERTIFICATES)))]
    #[case::no_certificate(|data: &mut Data| drop(data.remove(CERTIFICATE)), reissue(Defect::Missing(CERTIFICATE)))]
    #[case::no_key(|data: &mut Data| drop(data.remove(KEY)), reissue(Defect::Missing(KEY)))]
    #[case::key_is_not_pem(|data: &mut Data| set(data, KEY, b"secret"), reissue(Defect::Malformed(KEY)))]
    #[case::key_of_another(|data: &mut Data| { let key = issue()[KEY].clone(); data.insert(KEY.into(), key); }, reissue(Defect::KeyMismatch(KEY)))]
    #[case::of_another_ca(foreign, reissue(Defect::Unsigned))]
    fn defects_decide_what_is_issued(#[case] damage: fn(&mut Data), #[case] expected: Decision) {
        let mut data = issue();
        damage(&mut data);
        assert_eq!(decide_at(&data, 0), expected);
    }

    #[test]
    fn an_entry_cut_off_anywhere_is_replaced_and_never_panics() {
        let whole = issue();
        for entry in [CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY] {
            let bytes = &whole[entry].0;
            // Without its last line break the PEM is still whole.
            for length in (0..bytes.len() - 1).step_by(7).chain([bytes.len() - 2]) {
                let mut data = whole.clone();
                set(&mut data, entry, &bytes[..length]);
                let decision = decide_at(&data, 0);
                assert!(!matches!(decision, Decision::Keep(_)), "{entry} of {length} bytes: {decision:?}");
            }
        }
    }

    #[test]
    fn a_missing_name_is_added_and_an_extra_one_does_no_harm() {
        let material = Material::read(&issue());
        let lifetimes = Lifetimes::default();
        let more = names().with("10.0.0.1").unwrap();
        let missing = Names::default().with("10.0.0.1").unwrap();
        assert_eq!(decide(&material, &more, &lifetimes, ISSUED), Decision::Reissue(Cause::Names(missing)));
        let fewer = Names::default().with("hook.ns.svc").unwrap();
        assert!(matches!(decide(&material, &fewer, &lifetimes, ISSUED), Decision::Keep(_)));
    }

    #[test]
    fn debug_output_shows_no_key() {
        let data = issue();
        let shown = format!("{:?}", Material::read(&data));
        for entry in [CA_KEY, KEY] {
            let pem = String::from_utf8(data[entry].0.clone()).unwrap();
            let der = pem::parse(&pem).unwrap().into_contents();
            let secret_part = pem.lines().nth(1).unwrap();
            assert!(!shown.contains(secret_part), "{shown}");
            assert!(!shown.contains(&format!("{:?}", &der[36..60]).replace(['[', ']'], "")), "{shown}");
        }
        assert!(shown.contains("redacted"));
    }
}
