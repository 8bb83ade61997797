//! Who a review is from: the address that has sent it, and the namespace that it names. Places and memory are shared out by
//! both: API servers are trusted with the namespace, and whoever else reaches the port may name any.

use std::fmt;
use std::net::Ipv4Addr;

use axum::http::Extensions;
use jobset_program::server::party::Party;
use serde::Deserialize as _;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};

/// Bytes of a body in which its namespace is looked for. API servers write it before the objects, so that this costs
/// microseconds whatever the body is.
pub(crate) const HEAD: usize = 4 << 10;
/// Longest name of a namespace, in bytes (RFC 1123 label).
const LONGEST: usize = 63;

/// The party of the client of a request, which its connection has put into the extensions.
pub(crate) fn of(extensions: &Extensions) -> Party {
    extensions.get().cloned().unwrap_or_else(|| Party::of(Ipv4Addr::UNSPECIFIED.into()))
}

/// A namespace, from whatever address.
pub(crate) fn of_namespace(namespace: &str) -> Party {
    Party::of(Ipv4Addr::UNSPECIFIED.into()).with_namespace(namespace)
}

/// The party of a body that begins like this, from a client of this party. Reviews in which no namespace is found are those of
/// one more namespace.
pub(crate) fn named(client: &Party, body: &[u8]) -> Party {
    client.with_namespace(namespace(body))
}

/// `request.namespace` of a review, the first one if there are several; empty if none is found in the head of the body.
fn namespace(body: &[u8]) -> String {
    let found = text_at(&["request", "namespace"], &body[..body.len().min(HEAD)]);
    found.filter(|namespace| namespace.len() <= LONGEST).unwrap_or_default()
}

/// The first text at this path of keys in JSON, which may be cut off after it.
pub(crate) fn text_at(path: &[&'static str], json: &[u8]) -> Option<String> {
    let mut found = None;
    let find = Find { path, found: &mut found };
    // What is cut off ends with an error.
    let _ = find.deserialize(&mut serde_json::Deserializer::from_slice(json));
    found
}

/// Finds the text at a path of keys, and reads nothing else.
struct Find<'a> {
    path: &'a [&'static str],
    found: &'a mut Option<String>,
}

impl<'de> DeserializeSeed<'de> for Find<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.path.is_empty() {
            *self.found = Option::deserialize(deserializer)?;
            return Ok(());
        }
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Find<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Some((wanted, path)) = self.path.split_first() else { return Ok(()) };
        while let Some(key) = map.next_key::<String>()? {
            if key == *wanted && self.found.is_none() {
                map.next_value_seed(Find { path, found: self.found })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::of_api_server(
        r#"{"kind":"AdmissionReview","request":{"uid":"u","name":"n","namespace":"a","object":{"#,
        "a"
    )]
    #[case::whole(r#"{"request":{"namespace":"a"}}"#, "a")]
    #[case::of_object(r#"{"request":{"object":{"namespace":"b"},"namespace":"a"}}"#, "a")]
    #[case::several(r#"{"request":{"namespace":"a","namespace":"b"},"request":{"namespace":"c"}}"#, "a")]
    #[case::null(r#"{"request":{"namespace":null}}"#, "")]
    #[case::number(r#"{"request":{"namespace":7}}"#, "")]
    #[case::list(r#"{"request":["a"]}"#, "")]
    #[case::elsewhere(r#"{"namespace":"a"}"#, "")]
    #[case::cut_off(r#"{"request":{"namespace":"a"#, "")]
    #[case::not_json("namespace: a", "")]
    #[case::empty("", "")]
    fn namespace_is_first_one_of_request(#[case] body: &str, #[case] expected: &str) {
        assert_eq!(namespace(body.as_bytes()), expected);
    }

    #[test]
    fn namespace_too_long_or_too_late_is_none() {
        let of =
            |name: &str, namespace: &str| format!(r#"{{"request":{{"name":"{name}","namespace":"{namespace}"}}}}"#);
        assert_eq!(namespace(of("n", &"a".repeat(LONGEST)).as_bytes()).len(), LONGEST);
        assert_eq!(namespace(of("n", &"a".repeat(LONGEST + 1)).as_bytes()), "");
        assert_eq!(namespace(of(&"n".repeat(HEAD), "a").as_bytes()), "");
        assert_eq!(namespace("[".repeat(HEAD).as_bytes()), "");
    }
}
