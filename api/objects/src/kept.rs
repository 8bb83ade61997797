//! Lists and maps of which only a part is kept. Their length is up to whoever writes the object.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The domains of the labels, annotations and finalizers that the programs read: those of JobSets and of Jobs.
const DOMAINS: [&str; 3] = ["jobset.sigs.k8s.io", "alpha.jobset.sigs.k8s.io", "batch.kubernetes.io"];

/// Labels or annotations of [`DOMAINS`].
#[derive(Default)]
pub(crate) struct OwnEntries(pub(crate) BTreeMap<String, String>);

/// Finalizers of other domains that are kept: enough to say who holds an object that is being deleted.
const FOREIGN_FINALIZERS: usize = 2;

/// Finalizers of [`DOMAINS`], and [`FOREIGN_FINALIZERS`] of others.
#[derive(Default)]
pub(crate) struct KeptFinalizers(pub(crate) Vec<String>);

/// The owners that control an object: at most one, says the API server.
#[derive(Default)]
pub(crate) struct Controllers(pub(crate) Vec<OwnerReference>);

impl<'de> Deserialize<'de> for OwnEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OwnVisitor)
    }
}

struct OwnVisitor;

impl<'de> Visitor<'de> for OwnVisitor {
    type Value = OwnEntries;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OwnEntries, A::Error> {
        let mut entries = BTreeMap::new();
        while let Some(key) = map.next_key_seed(Key { foreign: false })? {
            match key {
                Some(key) => drop(entries.insert(key, map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(OwnEntries(entries))
    }
}

/// Reads a key. `None` if it is of another domain, unless `foreign` ones are read, too.
struct Key {
    foreign: bool,
}

fn is_own(key: &str) -> bool {
    key.split_once('/').is_some_and(|(domain, _)| DOMAINS.contains(&domain))
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<Self::Value, E> {
        Ok((self.foreign || is_own(key)).then(|| key.to_owned()))
    }
}

impl<'de> Deserialize<'de> for KeptFinalizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FinalizersVisitor)
    }
}

struct FinalizersVisitor;

impl<'de> Visitor<'de> for FinalizersVisitor {
    type Value = KeptFinalizers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of finalizers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut finalizers: A) -> Result<KeptFinalizers, A::Error> {
        let (mut kept, mut foreign) = (Vec::new(), 0);
        while let Some(finalizer) = finalizers.next_element_seed(Key { foreign: foreign < FOREIGN_FINALIZERS })? {
            foreign += usize::from(finalizer.as_deref().is_some_and(|finalizer| !is_own(finalizer)));
            kept.extend(finalizer);
        }
        Ok(KeptFinalizers(kept))
    }
}

impl<'de> Deserialize<'de> for Controllers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(ControllersVisitor)
    }
}

struct ControllersVisitor;

impl<'de> Visitor<'de> for ControllersVisitor {
    type Value = Controllers;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of owners")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut owners: A) -> Result<Controllers, A::Error> {
        let mut controllers = Vec::new();
        while let Some(owner) = owners.next_element::<OwnerReference>()? {
            controllers.extend(Some(owner).filter(|owner| owner.controller == Some(true)));
        }
        Ok(Controllers(controllers))
    }
}

/// A map of strings to strings in little more memory than its JSON: a Pod's node selector may have a hundred thousand entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompactMap {
    /// All keys and values, one after the other.
    text: String,
    /// Where each key ends, and each value.
    ends: Vec<(u32, u32)>,
}

impl CompactMap {
    pub fn get(&self, key: &str) -> Option<&str> {
        self.entries().find(|(it, _)| *it == key).map(|(_, value)| value)
    }

    /// Keys and values, in the order of the JSON.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str)> {
        let begins = std::iter::once(0).chain(self.ends.iter().map(|(_, end)| *end));
        let part = |range: Range<u32>| &self.text[range.start as usize..range.end as usize];
        begins.zip(&self.ends).map(move |(begin, (middle, end))| (part(begin..*middle), part(*middle..*end)))
    }
}

impl<'de> Deserialize<'de> for CompactMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(CompactVisitor)
    }
}

struct CompactVisitor;

impl<'de> Visitor<'de> for CompactVisitor {
    type Value = CompactMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<CompactMap, A::Error> {
        let mut read = CompactMap::default();
        while let Some(middle) = map.next_key_seed(Append(&mut read.text))? {
            let end = map.next_value_seed(Append(&mut read.text))?;
            read.ends.push((middle, end));
        }
        Ok(read)
    }
}

/// Appends a string to a text. Returns where it ends.
struct Append<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for Append<'_> {
    type Value = u32;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u32, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Append<'_> {
    type Value = u32;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u32, E> {
        self.0.push_str(text);
        u32::try_from(self.0.len()).map_err(|_| E::custom("a map of more than 4 GiB"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn entries_of_other_domains_are_skipped() {
        let labels = json!({
            "app": "train", "jobset.sigs.k8s.io/epoch": "1", "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack",
            "batch.kubernetes.io/job-name": "w-0", "jobset.sigs.k8s.io.example.com/x": "1", "jobset.sigs.k8s.io": "1",
        });
        let OwnEntries(kept) = serde_json::from_value(labels).unwrap();
        let keys: Vec<&str> = kept.keys().map(String::as_str).collect();
        let own =
            ["alpha.jobset.sigs.k8s.io/exclusive-topology", "batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/epoch"];
        assert_eq!(keys, own);
    }

    #[test]
    fn finalizers_of_other_domains_are_kept_in_part() {
        let finalizers = json!(["a/1", "b/2", "c/3", "batch.kubernetes.io/job-tracking", "foregroundDeletion"]);
        let KeptFinalizers(kept) = serde_json::from_value(finalizers).unwrap();
        assert_eq!(kept, ["a/1", "b/2", "batch.kubernetes.io/job-tracking"]);
    }

    #[test]
    fn owners_that_do_not_control_are_skipped() {
        let owner = |name: &str, controller: bool| json!({"apiVersion": "v1", "kind": "A", "name": name, "uid": name, "controller": controller});
        let Controllers(owners) = serde_json::from_value(json!([owner("a", false), owner("b", true)])).unwrap();
        assert!(owners.len() == 1 && owners[0].name == "b", "{owners:?}");
    }

    #[test]
    fn compact_map_has_keys_and_values_as_they_are() {
        let map: CompactMap = serde_json::from_value(json!({"": "x", "b": "", "rack": "r\u{e9}\"1"})).unwrap();
        assert_eq!(map.entries().collect::<Vec<_>>(), [("", "x"), ("b", ""), ("rack", "r\u{e9}\"1")]);
        assert_eq!((map.get("rack"), map.get("r"), map.get("b")), (Some("r\u{e9}\"1"), None, Some("")));
        assert_eq!(CompactMap::default().entries().count(), 0);
    }
}
