//! Who an agent is: the ServiceAccount token of its Pod.
//!
//! [`judge`] decides by the published keys of the cluster, and is pure. A token whose key or algorithm it does not know is for the
//! API server to review ([`review`]). [`authenticator`] has the input and output.

pub mod authenticator;
mod keys;
pub mod review;
mod turns;
mod verifier;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jobset_stream::message::PodRef;
use jsonwebtoken::{Algorithm, Validation};
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use keys::KeySet;

/// The audience of the tokens by which agents say who they are.
pub const AUDIENCE: &str = "jobset-relay";
/// Seconds by which the clocks of the API server and of this machine may differ.
const SKEW: i64 = 60;
/// Algorithms with public keys. The API server may know those that the relay does not verify itself.
const ASYMMETRIC: [&str; 10] =
    ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"];

/// An agent that has shown who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    pub pod: PodRef,
    /// When its token expires, in seconds since 1970.
    pub expires: i64,
}

/// Why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// It is no JSON Web Token of a ServiceAccount.
    Malformed,
    /// It is signed by no algorithm with public keys, or by another one than that of its key.
    Algorithm,
    /// The signature is not that of its key.
    Signature,
    /// It is for another audience than relays, or for others, too.
    Audience,
    /// Another cluster has issued it.
    Issuer,
    Expired,
    NotYetValid,
    NoPod,
    /// The API server has denied it.
    Denied,
    /// The API server could not be asked.
    Unreviewed,
    /// Too many tokens wait for a review.
    Busy,
}

impl Rejection {
    pub const ALL: [Self; 11] = [
        Self::Malformed,
        Self::Algorithm,
        Self::Signature,
        Self::Audience,
        Self::Issuer,
        Self::Expired,
        Self::NotYetValid,
        Self::NoPod,
        Self::Denied,
        Self::Unreviewed,
        Self::Busy,
    ];

    pub fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::Signature => "signature",
            Self::Audience => "audience",
            Self::Issuer => "issuer",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::NoPod => "no_pod",
            Self::Denied => "denied",
            Self::Unreviewed => "unreviewed",
            Self::Busy => "busy",
        }
    }
}

/// What the published keys say about a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// One of them has signed it, and it is valid.
    Accepted(AgentIdentity),
    /// Its key or its algorithm is unknown, so the API server has to review it. Nothing else is wrong with it.
    Unknown {
        /// When it expires by its own account, in seconds since 1970.
        expires: i64,
    },
    Rejected(Rejection),
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

#[derive(Deserialize)]
struct Claims {
    iss: String,
    aud: Audiences,
    exp: i64,
    #[serde(default)]
    nbf: Option<i64>,
    #[serde(default, rename = "kubernetes.io")]
    kubernetes: Option<Binding>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

/// What a token is bound to.
#[derive(Deserialize)]
struct Binding {
    namespace: String,
    #[serde(default)]
    pod: Option<BoundPod>,
}

#[derive(Deserialize)]
struct BoundPod {
    name: String,
    uid: String,
}

/// Judges a token by the published keys, `None` if they have not been read, at a time in seconds since 1970.
pub fn judge(keys: Option<&KeySet>, token: &str, now: i64) -> Verdict {
    judged(keys, token, now).unwrap_or_else(Verdict::Rejected)
}

fn judged(keys: Option<&KeySet>, token: &str, now: i64) -> Result<Verdict, Rejection> {
    verifier::install();
    let header = header(token)?;
    if !ASYMMETRIC.contains(&header.alg.as_str()) {
        return Err(Rejection::Algorithm);
    }
    // Judged before the signature, so that a token which cannot be valid costs neither a signature nor a review.
    let claims: Claims = jsonwebtoken::dangerous::insecure_decode_claims(token).map_err(|_| Rejection::Malformed)?;
    let identity = claims.judge(keys.map(KeySet::issuer), now)?;
    let key = keys.and_then(|keys| keys.find(header.kid.as_deref()?));
    let (Ok(algorithm), Some(key)) = (header.alg.parse::<Algorithm>(), key) else {
        return Ok(Verdict::Unknown { expires: identity.expires });
    };
    if !key.permits(algorithm, &header.alg) {
        return Err(Rejection::Algorithm);
    }
    jsonwebtoken::decode::<IgnoredAny>(token, key.decoding(), &signature_alone(algorithm))
        .map_err(|_| Rejection::Signature)?;
    Ok(Verdict::Accepted(identity))
}

fn header(token: &str) -> Result<Header, Rejection> {
    let (encoded, _) = token.split_once('.').ok_or(Rejection::Malformed)?;
    let decoded = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| Rejection::Malformed)?;
    serde_json::from_slice(&decoded).map_err(|_| Rejection::Malformed)
}

/// The claims are judged by [`Claims::judge`].
fn signature_alone(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

impl Claims {
    /// The agent, if the token is valid for relays now and bound to a Pod.
    fn judge(self, issuer: Option<&str>, now: i64) -> Result<AgentIdentity, Rejection> {
        // A token that is also for the API server would be worth more to whoever steals it than an agent needs.
        let is_for_relays_alone = match &self.aud {
            Audiences::One(audience) => audience == AUDIENCE,
            Audiences::Many(audiences) => {
                !audiences.is_empty() && audiences.iter().all(|audience| audience == AUDIENCE)
            }
        };
        if !is_for_relays_alone {
            return Err(Rejection::Audience);
        }
        if issuer.is_some_and(|issuer| issuer != self.iss) {
            return Err(Rejection::Issuer);
        }
        if self.exp <= now {
            return Err(Rejection::Expired);
        }
        if self.nbf.is_some_and(|not_before| not_before > now.saturating_add(SKEW)) {
            return Err(Rejection::NotYetValid);
        }
        let binding = self.kubernetes.ok_or(Rejection::NoPod)?;
        let pod = binding.pod.ok_or(Rejection::NoPod)?;
        if binding.namespace.is_empty() || pod.name.is_empty() || pod.uid.is_empty() {
            return Err(Rejection::NoPod);
        }
        let pod = PodRef { namespace: binding.namespace, name: pod.name, uid: pod.uid };
        Ok(AgentIdentity { pod, expires: self.exp })
    }
}

#[cfg(test)]
mod tests;
