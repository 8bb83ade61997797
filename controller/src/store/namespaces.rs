//! What the rules read of namespaces: which of them are being deleted.

use std::collections::BTreeSet;

use jobset_objects::metadata;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Resource, ResourceExt};
use serde::Deserialize;

/// The part of a Namespace that is read from the wire.
#[derive(Clone, Debug, Default, Deserialize, Resource)]
#[resource(inherit = "k8s_openapi::api::core::v1::Namespace")]
pub struct NamespaceWire {
    #[serde(default, deserialize_with = "metadata")]
    metadata: ObjectMeta,
}

/// The namespaces that are being deleted. A new listing makes a new value, which replaces this one when it is complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terminating(BTreeSet<String>);

impl Terminating {
    /// The namespace was seen. Returns whether it is being deleted, and was not before.
    pub fn apply(&mut self, namespace: &NamespaceWire) -> bool {
        let name = namespace.name_any();
        if namespace.metadata.deletion_timestamp.is_none() {
            // Another of that name may have followed.
            self.0.remove(&name);
            return false;
        }
        self.0.insert(name)
    }

    /// The namespace of this name is gone.
    pub fn delete(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// Whether the namespace is being deleted.
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jobset_api::JobSet;
    use serde_json::json;

    use crate::store::{Change, Key, Store, WatchEvent};

    fn key(namespace: &str, name: &str) -> Key {
        Key { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    fn namespace(name: &str, deleted: bool) -> WatchEvent {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let seen = json!({"metadata": {"name": name, "deletionTimestamp": deleted}, "spec": {"finalizers": ["x"]}});
        let view = Box::new(serde_json::from_value(seen).unwrap());
        WatchEvent::Namespace(Change::Put { object: key("", name), owner: None, view })
    }

    fn store() -> Store {
        let mut store = Store::default();
        for key in [key("a", "train"), key("b", "train")] {
            let view: JobSet = serde_json::from_value(json!({"metadata": {"name": key.name}, "spec": {}})).unwrap();
            store.see(WatchEvent::JobSet(Change::Put { object: key.clone(), owner: Some(key), view: Arc::new(view) }));
        }
        store
    }

    #[test]
    fn a_deleted_namespace_marks_its_jobsets_once() {
        let mut store = store();
        assert_eq!(store.see(namespace("a", false)), []);
        assert_eq!(store.see(namespace("a", true)), [key("a", "train")]);
        assert_eq!(store.see(namespace("a", true)), []);
    }

    #[test]
    fn the_end_of_a_listing_marks_those_that_were_deleted_meanwhile() {
        let mut store = store();
        store.see(namespace("a", true));
        store.see(WatchEvent::Namespace(Change::ListingBegins));
        store.see(namespace("b", true));
        assert!(store.terminating.contains("a") && !store.terminating.contains("b"), "as it was, until all are listed");
        assert_eq!(store.see(WatchEvent::Namespace(Change::ListingEnded)), [key("b", "train")]);
        assert!(!store.terminating.contains("a"), "it is gone");
    }

    #[test]
    fn another_namespace_of_that_name_is_another() {
        let mut store = store();
        store.see(namespace("a", true));
        store.see(namespace("a", false));
        assert!(!store.terminating.contains("a"));
    }
}
