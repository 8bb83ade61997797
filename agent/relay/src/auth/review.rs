//! Tokens that the API server has to review: what it answers, and what is remembered of it.

use std::collections::{HashMap, VecDeque};

use jobset_stream::message::PodRef;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus, UserInfo};
use ring::digest::{SHA256, digest};

use super::{AUDIENCE, AgentIdentity, Rejection};

/// Most reviewed tokens that are remembered.
const REMEMBERED: usize = 4096;
/// How long a denied token is remembered, in seconds.
const DENIED_FOR: i64 = 60;

const USER: &str = "system:serviceaccount:";
const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// The question to the API server. It names the audience of relays, always.
pub fn question(token: &str) -> TokenReview {
    let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![AUDIENCE.to_owned()]) };
    TokenReview { spec, ..TokenReview::default() }
}

/// What the answer says about a token that expires then.
///
/// # Errors
/// It is not valid for relays, or bound to no Pod.
pub fn answer(status: TokenReviewStatus, expires: i64) -> Result<AgentIdentity, Rejection> {
    if status.authenticated != Some(true) {
        return Err(Rejection::Denied);
    }
    if !status.audiences.unwrap_or_default().iter().any(|it| it == AUDIENCE) {
        return Err(Rejection::Audience);
    }
    let pod = status.user.and_then(pod).ok_or(Rejection::NoPod)?;
    Ok(AgentIdentity { pod, expires })
}

fn pod(user: UserInfo) -> Option<PodRef> {
    let username = user.username?;
    let (namespace, _) = username.strip_prefix(USER)?.split_once(':')?;
    let mut extra = user.extra?;
    let mut one = |key| match extra.remove(key)?.as_mut_slice() {
        [value] if !value.is_empty() => Some(std::mem::take(value)),
        _ => None,
    };
    Some(PodRef { namespace: namespace.to_owned(), name: one(POD_NAME)?, uid: one(POD_UID)? })
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Fingerprint([u8; 32]);

impl Fingerprint {
    fn of(token: &str) -> Option<Self> {
        digest(&SHA256, token.as_bytes()).as_ref().try_into().ok().map(Self)
    }
}

/// Reviewed tokens until they expire.
#[derive(Debug, Default)]
pub struct Memory {
    reviewed: HashMap<Fingerprint, (Result<AgentIdentity, Rejection>, i64)>,
    order: VecDeque<Fingerprint>,
}

impl Memory {
    /// What a review has said about this token, if that still counts.
    pub fn recall(&self, token: &str, now: i64) -> Option<Result<AgentIdentity, Rejection>> {
        let (result, until) = self.reviewed.get(&Fingerprint::of(token)?)?;
        (now < *until).then(|| result.clone())
    }

    /// Remembers what a review has said: a valid token until it expires, another one for a minute. The oldest makes room.
    pub fn remember(&mut self, token: &str, result: &Result<AgentIdentity, Rejection>, now: i64) {
        let Some(fingerprint) = Fingerprint::of(token) else { return };
        let until = result.as_ref().map_or(now.saturating_add(DENIED_FOR), |identity| identity.expires);
        if self.reviewed.insert(fingerprint, (result.clone(), until)).is_none() {
            self.order.push_back(fingerprint);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.reviewed.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn status() -> Value {
        json!({"authenticated": true, "audiences": [AUDIENCE], "user": {
            "username": "system:serviceaccount:ml:default",
            "extra": {POD_NAME: ["train-0"], POD_UID: ["u"]},
        }})
    }

    fn identity(expires: i64) -> AgentIdentity {
        AgentIdentity { pod: PodRef { namespace: "ml".into(), name: "train-0".into(), uid: "u".into() }, expires }
    }

    #[test]
    fn question_names_the_audience_of_relays() {
        assert_eq!(question("t").spec.audiences, Some(vec!["jobset-relay".to_owned()]));
    }

    #[test]
    fn answer_names_the_pod() {
        assert_eq!(answer(serde_json::from_value(status()).unwrap(), 9), Ok(identity(9)));
    }

    #[rstest]
    #[case::denied(json!({"authenticated": false}), Rejection::Denied)]
    #[case::other_audience(json!({"audiences": ["https://kubernetes.default.svc"]}), Rejection::Audience)]
    #[case::no_audience(json!({"audiences": null}), Rejection::Audience)]
    #[case::node(json!({"user": {"username": "system:node:n"}}), Rejection::NoPod)]
    #[case::no_pod(json!({"user": {"extra": {POD_UID: []}}}), Rejection::NoPod)]
    #[case::two_pods(json!({"user": {"extra": {POD_UID: ["u", "v"]}}}), Rejection::NoPod)]
    fn answer_without_pod_for_relays_is_rejected(#[case] change: Value, #[case] expected: Rejection) {
        let mut status = status();
        merge(&mut status, change);
        assert_eq!(answer(serde_json::from_value(status).unwrap(), 9), Err(expected));
    }

    fn merge(base: &mut Value, change: Value) {
        match (base, change) {
            (Value::Object(base), Value::Object(change)) => {
                for (key, value) in change {
                    merge(base.entry(key).or_insert(Value::Null), value);
                }
            }
            (base, change) => *base = change,
        }
    }

    #[test]
    fn review_counts_until_token_expiry_and_denial_a_minute() {
        let mut memory = Memory::default();
        memory.remember("good", &Ok(identity(1000)), 0);
        memory.remember("bad", &Err(Rejection::Denied), 0);
        assert_eq!(memory.recall("good", 999), Some(Ok(identity(1000))));
        assert_eq!(memory.recall("good", 1000), None);
        assert_eq!(memory.recall("bad", DENIED_FOR - 1), Some(Err(Rejection::Denied)));
        assert_eq!(memory.recall("bad", DENIED_FOR), None);
        assert_eq!(memory.recall("other", 0), None);
    }

    #[test]
    fn memory_is_bounded_and_forgets_the_oldest() {
        let mut memory = Memory::default();
        for number in 0..=REMEMBERED {
            memory.remember(&number.to_string(), &Ok(identity(1000)), 0);
            memory.remember(&number.to_string(), &Ok(identity(1000)), 0);
        }
        assert_eq!((memory.reviewed.len(), memory.order.len()), (REMEMBERED, REMEMBERED));
        assert_eq!(memory.recall("0", 0), None);
        assert!(memory.recall("1", 0).is_some());
    }
}
