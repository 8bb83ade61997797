//! Tokens that are signed here.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const NOW: i64 = 1_000_000;
const ISSUER: &str = "https://kubernetes.default.svc";

/// The API server's key.
struct Issuer(EcdsaKeyPair);

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap())
    }

    fn point(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    fn keys(&self, id: &str) -> KeySet {
        let (x, y) = self.point()[1..].split_at(32);
        let [x, y] = [x, y].map(|it| URL_SAFE_NO_PAD.encode(it));
        let key = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": x, "y": y});
        let unreadable = json!({"kty": "AKP", "kid": "b", "pub": "x"});
        let shared = json!({"kty": "oct", "kid": "c", "k": "c2VjcmV0"});
        let discovery = json!({"issuer": ISSUER, "jwks_uri": "x"}).to_string();
        KeySet::read(&discovery, &json!({"keys": [unreadable, shared, key]}).to_string()).unwrap()
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn message(header: &Value, claims: &Value) -> String {
    let [header, claims] = [header, claims].map(|it| URL_SAFE_NO_PAD.encode(it.to_string()));
    format!("{header}.{claims}")
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "a"})
}

fn claims() -> Value {
    json!({"iss": ISSUER, "aud": [AUDIENCE], "exp": NOW + 3600, "nbf": NOW, "sub": "system:serviceaccount:ml:default",
        "kubernetes.io": {"namespace": "ml", "pod": {"name": "train-0", "uid": "u"}, "serviceaccount": {"name": "default"}}})
}

fn with(mut base: Value, key: &str, value: Value) -> Value {
    base[key] = value;
    base
}

fn accepted() -> Verdict {
    let pod = PodRef { namespace: "ml".into(), name: "train-0".into(), uid: "u".into() };
    Verdict::Accepted(AgentIdentity { pod, expires: NOW + 3600 })
}

#[test]
fn token_of_a_pod_is_accepted_until_it_expires() {
    let issuer = Issuer::new();
    let (keys, token) = (issuer.keys("a"), issuer.sign(&header(), &claims()));
    assert_eq!(judge(Some(&keys), &token, NOW), accepted());
    assert_eq!(judge(Some(&keys), &token, NOW + 3599), accepted());
    assert_eq!(judge(Some(&keys), &token, NOW + 3600), Verdict::Rejected(Rejection::Expired));
    let one = issuer.sign(&header(), &with(claims(), "aud", json!(AUDIENCE)));
    assert_eq!(judge(Some(&keys), &one, NOW), accepted());
}

#[rstest]
#[case::of_the_api_server("aud", json!([ISSUER]), Rejection::Audience)]
#[case::also_of_the_api_server("aud", json!([AUDIENCE, ISSUER]), Rejection::Audience)]
#[case::of_another("aud", json!("vault"), Rejection::Audience)]
#[case::of_nobody("aud", json!([]), Rejection::Audience)]
#[case::no_audience("aud", Value::Null, Rejection::Malformed)]
#[case::other_issuer("iss", json!("https://other"), Rejection::Issuer)]
#[case::expired("exp", json!(NOW - 1), Rejection::Expired)]
#[case::without_end("exp", Value::Null, Rejection::Malformed)]
#[case::end_is_text("exp", json!("9999999999"), Rejection::Malformed)]
#[case::beginning_is_text("nbf", json!("0"), Rejection::Malformed)]
#[case::not_yet_valid("nbf", json!(NOW + SKEW + 1), Rejection::NotYetValid)]
#[case::no_binding("kubernetes.io", Value::Null, Rejection::NoPod)]
#[case::bound_to_a_secret("kubernetes.io", json!({"namespace": "ml", "secret": {"name": "s", "uid": "u"}}), Rejection::NoPod)]
#[case::pod_without_uid("kubernetes.io", json!({"namespace": "ml", "pod": {"name": "p", "uid": ""}}), Rejection::NoPod)]
fn signed_token_with_wrong_claim_is_rejected(#[case] key: &str, #[case] value: Value, #[case] expected: Rejection) {
    let issuer = Issuer::new();
    let token = issuer.sign(&header(), &with(claims(), key, value.clone()));
    assert_eq!(judge(Some(&issuer.keys("a")), &token, NOW), Verdict::Rejected(expected));
    // It is not worth a review either.
    let unknown = issuer.sign(&with(header(), "kid", json!("z")), &with(claims(), key, value));
    assert_eq!(judge(Some(&issuer.keys("a")), &unknown, NOW), Verdict::Rejected(expected));
}

#[test]
fn token_that_another_key_has_signed_is_rejected() {
    let (issuer, thief) = (Issuer::new(), Issuer::new());
    let token = thief.sign(&header(), &claims());
    assert_eq!(judge(Some(&issuer.keys("a")), &token, NOW), Verdict::Rejected(Rejection::Signature));
}

#[test]
fn token_with_changed_claims_is_rejected() {
    let issuer = Issuer::new();
    let token = issuer.sign(&header(), &claims());
    let (_, signature) = token.rsplit_once('.').unwrap();
    let other = json!({"namespace": "ml", "pod": {"name": "train-1", "uid": "v"}});
    let changed = format!("{}.{signature}", message(&header(), &with(claims(), "kubernetes.io", other)));
    assert_eq!(judge(Some(&issuer.keys("a")), &changed, NOW), Verdict::Rejected(Rejection::Signature));
}

#[rstest]
#[case::none("none")]
#[case::none_in_capitals("NONE")]
#[case::empty("")]
#[case::shared_secret("HS256")]
fn token_without_public_key_algorithm_is_rejected_and_not_reviewed(#[case] algorithm: &str) {
    let issuer = Issuer::new();
    for id in ["a", "c", "z"] {
        let header = json!({"alg": algorithm, "kid": id});
        let message = message(&header, &claims());
        // The public key as a shared secret, which a verifier of HMAC would find right.
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, issuer.point());
        let signature = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, message.as_bytes()));
        for token in [format!("{message}."), format!("{message}.{signature}")] {
            assert_eq!(judge(Some(&issuer.keys("a")), &token, NOW), Verdict::Rejected(Rejection::Algorithm));
        }
    }
}

#[rstest]
#[case::of_another_family("RS256")]
#[case::of_another_curve("ES384")]
#[case::of_other_curves("EdDSA")]
fn token_with_another_algorithm_than_its_key_is_rejected(#[case] algorithm: &str) {
    let issuer = Issuer::new();
    let token = issuer.sign(&with(header(), "alg", json!(algorithm)), &claims());
    assert_eq!(judge(Some(&issuer.keys("a")), &token, NOW), Verdict::Rejected(Rejection::Algorithm));
}

#[test]
fn token_of_unknown_key_or_algorithm_needs_api_server() {
    let issuer = Issuer::new();
    let unknown = Verdict::Unknown { expires: NOW + 3600 };
    let token = issuer.sign(&header(), &claims());
    assert_eq!(judge(Some(&issuer.keys("b")), &token, NOW), unknown);
    assert_eq!(judge(None, &token, NOW), unknown);
    let without_id = issuer.sign(&json!({"alg": "ES256"}), &claims());
    assert_eq!(judge(Some(&issuer.keys("a")), &without_id, NOW), unknown);
    let algorithm = issuer.sign(&with(header(), "alg", json!("ES512")), &claims());
    assert_eq!(judge(Some(&issuer.keys("a")), &algorithm, NOW), unknown);
    let secret = issuer.sign(&with(header(), "kid", json!("c")), &claims());
    assert_eq!(judge(Some(&issuer.keys("a")), &secret, NOW), unknown, "a shared secret is no key of tokens");
}

#[rstest]
#[case("")]
#[case("token")]
#[case("a.b")]
#[case("e30.e30.")]
#[case("....")]
fn text_that_is_no_token_is_rejected(#[case] text: &str) {
    assert_eq!(judge(Some(&Issuer::new().keys("a")), text, NOW), Verdict::Rejected(Rejection::Malformed));
}
