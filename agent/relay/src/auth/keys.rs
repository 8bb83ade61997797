//! The keys by which the cluster signs tokens, as it publishes them for OpenID Connect.

use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// What `/.well-known/openid-configuration` says.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
}

/// What `/openid/v1/jwks` says. One key that cannot be read does not hide the others.
#[derive(Deserialize)]
struct Published {
    keys: Vec<Value>,
}

#[derive(Clone, Debug)]
pub struct KeySet {
    issuer: String,
    keys: Vec<PublishedKey>,
}

#[derive(Clone, Debug)]
pub(super) struct PublishedKey {
    id: String,
    /// The algorithm, if the key names one.
    algorithm: Option<String>,
    decoding: DecodingKey,
}

impl KeySet {
    /// Reads both documents. Leaves out keys without an id, and those of unknown kinds.
    pub fn read(discovery: &str, keys: &str) -> serde_json::Result<Self> {
        let Discovery { issuer } = serde_json::from_str(discovery)?;
        let Published { keys } = serde_json::from_str(keys)?;
        Ok(Self { issuer, keys: keys.into_iter().filter_map(PublishedKey::read).collect() })
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Whether both have the same issuer, and keys of the same ids.
    pub(super) fn has_same_names(&self, other: &Self) -> bool {
        let ids = |keys: &Self| keys.keys.iter().map(|key| key.id.clone()).collect::<Vec<_>>();
        self.issuer == other.issuer && ids(self) == ids(other)
    }

    pub(super) fn find(&self, id: &str) -> Option<&PublishedKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}

impl PublishedKey {
    fn read(key: Value) -> Option<Self> {
        let algorithm = key.get("alg").and_then(Value::as_str).map(str::to_owned);
        let key: Jwk = serde_json::from_value(key).ok()?;
        let decoding = DecodingKey::from_jwk(&key).ok()?;
        let is_public = decoding.family() != AlgorithmFamily::Hmac;
        let id = key.common.key_id?;
        is_public.then_some(Self { id, algorithm, decoding })
    }

    /// Whether tokens of this key may have this algorithm, which a token calls so.
    pub(super) fn permits(&self, algorithm: Algorithm, name: &str) -> bool {
        self.algorithm.as_ref().is_none_or(|it| it == name) && self.decoding.family() == algorithm.family()
    }

    pub(super) fn decoding(&self) -> &DecodingKey {
        &self.decoding
    }
}
