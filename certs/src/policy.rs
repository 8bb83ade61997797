//! Decides whether a CA and a serving certificate can stay as they are. Pure: the clock and the Secret's contents come in as
//! values.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;

use crate::handover::elapsed;
use crate::issue::BACKDATED;
use crate::material::{Authority, Defect, Serving};
use crate::x509::Validity;
use crate::{Lifetimes, Names};

/// Annotation of the Secret with the CA that throws out every CA issued before this time, as in 2026-11-24T11:00:00Z: their
/// keys may have been stolen.
pub const DISTRUST_BEFORE: &str = "jobset.sigs.k8s.io/distrust-ca-before";

/// Annotation of the Secret with the CA that replaces a CA issued before this time, and its certificates, as if they were due: the
/// CA stays trusted, and nothing is rejected.
pub const ROTATE_BEFORE: &str = "jobset.sigs.k8s.io/rotate-ca-before";

/// Why something has to be issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is missing or unusable.
    Defect(Defect),
    Expired,
    /// It is not valid yet: somebody's clock is wrong.
    NotYetValid,
    Due,
    /// Somebody has asked to replace it.
    Asked,
    /// Somebody has asked to trust it no longer.
    Distrusted,
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
            Self::Asked => write!(f, "issued before the time of the annotation {ROTATE_BEFORE}"),
            Self::Distrusted => write!(f, "issued before the time of the annotation {DISTRUST_BEFORE}"),
            Self::Names(missing) => write!(f, "not valid for {missing}"),
        }
    }
}

/// A time before which CAs were issued that somebody wants to have replaced, as an annotation of their Secret says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// CAs from before this time are to be replaced.
    pub time: Option<Timestamp>,
    /// The annotation has a time that is still to come: clocks differ. It means nothing before then, because a CA that is issued
    /// now would be replaced again.
    pub from: Option<Timestamp>,
    /// What is wrong with the annotation. Nothing else waits until somebody corrects it.
    pub remark: Option<String>,
}

impl Before {
    /// Reads this annotation of the Secret with the CA.
    fn of(secret: &Secret, annotation: &str, now: Timestamp) -> Self {
        let Some(text) = secret.annotations().get(annotation) else { return Self::default() };
        match text.trim().parse().ok().and_then(next_second) {
            Some(time) if time <= now => Self { time: Some(time), ..Self::default() },
            Some(time) => Self { from: Some(time), ..Self::default() },
            None => {
                let remark = format!(
                    "no CA is replaced: the annotation {annotation} is {text:?}, which is not a time such as \
                     2026-11-24T11:00:00Z"
                );
                Self { remark: Some(remark), ..Self::default() }
            }
        }
    }
}

/// What the annotations of the Secret ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// See [`DISTRUST_BEFORE`].
    pub distrust: Before,
    /// See [`ROTATE_BEFORE`].
    pub rotate: Before,
}

impl Requests {
    /// Reads the annotations of the Secret with the CA.
    pub fn of(secret: &Secret, now: Timestamp) -> Self {
        let before = |annotation| Before::of(secret, annotation, now);
        Self { distrust: before(DISTRUST_BEFORE), rotate: before(ROTATE_BEFORE) }
    }

    /// When the next of them takes effect.
    pub fn next_time(&self) -> Option<Timestamp> {
        [self.distrust.from, self.rotate.from].into_iter().flatten().min()
    }

    /// What is wrong with the first of them that is wrong.
    pub fn remark(&self) -> Option<String> {
        self.distrust.remark.clone().or_else(|| self.rotate.remark.clone())
    }
}

/// The first whole second that is not before that time. Certificates know no parts of a second: one issued in the same second,
/// a moment later, would count as issued before.
fn next_second(time: Timestamp) -> Option<Timestamp> {
    Timestamp::from_second(time.as_second() + i64::from(time.subsec_nanosecond() > 0)).ok()
}

/// When a certificate was issued that is valid so long.
pub(crate) fn issued(validity: Validity) -> Timestamp {
    validity.not_before.checked_add(BACKDATED).unwrap_or(Timestamp::MAX)
}

/// Whether a CA that is valid so long was issued before that time.
pub fn is_issued_before(validity: Validity, before: Option<Timestamp>) -> bool {
    before.is_some_and(|before| issued(validity) < before)
}

/// Whether what the CAs before this one have issued can be in use no longer: every certificate has been replaced, and the last of
/// the others has expired. None of them was issued after this CA.
pub(crate) fn is_settled(authority: Validity, all_replaced: bool, lifetimes: &Lifetimes, now: Timestamp) -> bool {
    all_replaced && elapsed(issued(authority), now) >= lifetimes.serving()
}

/// Until when the CA can stay. It is due when it could not outlive a serving certificate issued now.
pub fn authority(
    found: &Result<Authority, Defect>,
    lifetimes: &Lifetimes,
    requests: &Requests,
    now: Timestamp,
) -> Result<Timestamp, Cause> {
    let validity = found.as_ref().map_err(|defect| Cause::Defect(*defect))?.validity;
    for (before, cause) in [(&requests.distrust, Cause::Distrusted), (&requests.rotate, Cause::Asked)] {
        if is_issued_before(validity, before.time) {
            return Err(cause);
        }
    }
    aged(validity, before(validity.not_after, lifetimes.serving()), now)
}

/// Until when the serving certificate can stay. It is due when a third of its lifetime is left. Names that it has beyond
/// those do no harm.
pub fn serving(
    found: &Result<Serving, Defect>,
    names: &Names,
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<Timestamp, Cause> {
    let serving = found.as_ref().map_err(|defect| Cause::Defect(*defect))?;
    let until = aged(serving.validity, before(serving.validity.not_after, lifetimes.serving() / 3), now)?;
    let missing = names.missing_from(&serving.names);
    if missing.is_empty() { Ok(until) } else { Err(Cause::Names(missing)) }
}

fn aged(validity: Validity, due: Timestamp, now: Timestamp) -> Result<Timestamp, Cause> {
    if now < validity.not_before {
        Err(Cause::NotYetValid)
    } else if now > validity.not_after {
        Err(Cause::Expired)
    } else if now >= due {
        Err(Cause::Due)
    } else {
        Ok(due)
    }
}

fn before(time: Timestamp, duration: Duration) -> Timestamp {
    time.checked_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use rstest::rstest;

    use super::*;
    use crate::issue;
    use crate::material::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, Data, KEY, Material, with_new_serving};

    /// A fixed moment; the issue of everything below.
    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    #[derive(Debug, PartialEq)]
    enum Replaced {
        Authority(Cause),
        Serving(Cause),
    }
    use Replaced::{Authority, Serving};

    fn names() -> Names {
        Names::of_service("hook", "ns").unwrap()
    }

    fn issue() -> Data {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(ISSUED, &lifetimes).unwrap();
        with_new_serving(&authority, &names(), ISSUED, &lifetimes).unwrap()
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

    fn decide(data: &Data, names: &Names, requests: &Requests, now: Timestamp) -> Result<Timestamp, Replaced> {
        let (material, lifetimes) = (Material::read(data), Lifetimes::default());
        let until = authority(&material.authority, &lifetimes, requests, now).map_err(Authority)?;
        Ok(until.min(serving(&material.serving, names, &lifetimes, now).map_err(Serving)?))
    }

    fn decide_at(data: &Data, day: i64) -> Result<Timestamp, Replaced> {
        decide(data, &names(), &Requests::default(), ISSUED + jiff::SignedDuration::from_hours(day * 24))
    }

    fn reissue(defect: Defect) -> Replaced {
        Serving(Cause::Defect(defect))
    }

    fn rotate(defect: Defect) -> Replaced {
        Authority(Cause::Defect(defect))
    }

    #[rstest]
    #[case::just_issued(0, None)]
    #[case::two_thirds_of_the_serving_certificate(59, None)]
    #[case::a_third_of_the_serving_certificate_is_left(61, Some(Serving(Cause::Due)))]
    #[case::serving_certificate_expired(91, Some(Serving(Cause::Expired)))]
    #[case::ca_cannot_outlive_another_serving_certificate(276, Some(Authority(Cause::Due)))]
    #[case::ca_expired(366, Some(Authority(Cause::Expired)))]
    #[case::clock_turned_back(-1, Some(Authority(Cause::NotYetValid)))]
    fn age_decides_what_is_issued(#[case] day: i64, #[case] expected: Option<Replaced>) {
        assert_eq!(decide_at(&issue(), day).err(), expected);
    }

    #[test]
    fn kept_certificate_is_checked_again_before_renewal() {
        let days = decide_at(&issue(), 0).unwrap().duration_since(ISSUED).as_secs() / 86_400;
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
    fn defects_decide_what_is_issued(#[case] damage: fn(&mut Data), #[case] expected: Replaced) {
        let mut data = issue();
        damage(&mut data);
        assert_eq!(decide_at(&data, 0), Err(expected));
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
                assert!(decide_at(&data, 0).is_err(), "{entry} of {length} bytes");
            }
        }
    }

    #[test]
    fn missing_name_is_added_and_extra_name_stays() {
        let data = issue();
        let more = names().with("10.0.0.1").unwrap();
        let missing = Names::default().with("10.0.0.1").unwrap();
        assert_eq!(decide(&data, &more, &Requests::default(), ISSUED), Err(Serving(Cause::Names(missing))));
        let fewer = Names::default().with("hook.ns.svc").unwrap();
        assert!(decide(&data, &fewer, &Requests::default(), ISSUED).is_ok());
    }

    #[test]
    fn ca_older_than_annotation_is_replaced_same_second_stays() {
        let (data, later) = (issue(), ISSUED + jiff::SignedDuration::from_secs(1));
        let before = |time| Before { time: Some(time), ..Before::default() };
        let distrust = |time| Requests { distrust: before(time), ..Requests::default() };
        let rotate = |time| Requests { rotate: before(time), ..Requests::default() };
        assert_eq!(decide(&data, &names(), &distrust(later), later), Err(Authority(Cause::Distrusted)));
        assert_eq!(decide(&data, &names(), &rotate(later), later), Err(Authority(Cause::Asked)));
        for requests in [distrust(ISSUED), rotate(ISSUED)] {
            assert!(decide(&data, &names(), &requests, later).is_ok());
        }
    }

    #[rstest]
    #[case::new_ca(0, true, false)]
    #[case::last_certificate_of_the_ca_before_may_be_valid(89, true, false)]
    #[case::last_certificate_of_the_ca_before_has_expired(90, true, true)]
    #[case::certificate_of_the_ca_before_is_in_use(90, false, false)]
    #[case::clock_turned_back(-1, true, false)]
    fn ca_before_stays_trusted_for_the_life_of_a_certificate(
        #[case] day: i64,
        #[case] all_replaced: bool,
        #[case] expected: bool,
    ) {
        let authority = Material::read(&issue()).authority.unwrap().validity;
        let now = ISSUED + jiff::SignedDuration::from_hours(24 * day);
        assert_eq!(is_settled(authority, all_replaced, &Lifetimes::default(), now), expected);
    }

    #[rstest]
    #[case::distrust(DISTRUST_BEFORE, |it: Requests| it.distrust)]
    #[case::rotate(ROTATE_BEFORE, |it: Requests| it.rotate)]
    fn request_follows_its_annotation(#[case] annotation: &str, #[case] part: fn(Requests) -> Before) {
        let requests = |text: &str| {
            let mut secret = Secret::default();
            secret.annotations_mut().insert(annotation.to_owned(), text.to_owned());
            Requests::of(&secret, ISSUED)
        };
        let of = |text: &str| part(requests(text));
        assert_eq!(of(&ISSUED.to_string()), Before { time: Some(ISSUED), ..Before::default() });
        let moment = jiff::SignedDuration::from_millis(300);
        assert_eq!(of(&(ISSUED - moment).to_string()), Before { time: Some(ISSUED), ..Before::default() });
        let next = Some(ISSUED + jiff::SignedDuration::from_secs(1));
        assert_eq!(of(&(ISSUED + moment).to_string()), Before { from: next, ..Before::default() });
        assert_eq!(requests(&(ISSUED + moment).to_string()).next_time(), next);
        let later = "2300-01-01T00:00:00Z";
        assert_eq!(of(later), Before { from: Some(later.parse().unwrap()), ..Before::default() });
        assert_eq!(Requests::of(&Secret::default(), ISSUED), Requests::default());
        let wrong = requests("now");
        assert!(wrong.remark().is_some_and(|it| it.contains("\"now\"") && it.contains(annotation)), "{wrong:?}");
        assert_eq!((part(wrong.clone()).time, wrong.next_time()), (None, None));
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
