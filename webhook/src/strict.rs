//! Reads structs from JSON objects alone, and no more of them than there is memory for.
//!
//! `serde` reads a struct from a list, too, as its fields in their order: `spec: []` is a specification without any. The
//! API server knows no such thing. Its webhooks are called before it compares an object with the schema, and a patch for
//! such an object would not apply.
//!
//! For the same reason, what is read may be anything. A volume takes three kilobytes in memory and three bytes on the
//! wire, `{},`; a label a hundred bytes and eight. So the entries of lists are counted by the size of their type, those of
//! maps by what a map takes for each, and reading ends where they are too many.

use std::cell::Cell;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

use crate::limits::LARGE;

/// Most bytes that the entries of all lists and maps of a review may take, apart from their texts. An object of ordinary
/// size takes a hundredth of it.
pub(crate) const BUDGET: usize = 16 << 20;
/// The same of a large one, of which there is one at a time ([`crate::limits`]). An object of the 1.5 MiB that etcd stores
/// takes less than half of it even if it is made of nothing but short variables of the environment; an update has two.
const LARGE_BUDGET: usize = 48 << 20;
/// What an entry of a map takes, in times of its key: key and value, the text of the key, and room in the tree. The key of a
/// struct is one byte, which stands for a field.
const ENTRY: usize = 4;
/// What an error begins with that says so.
pub(crate) const TOO_LARGE: &str = "the object is too large";

/// The budget of a review of this length.
pub(crate) fn budget(length: usize) -> usize {
    if length > LARGE { LARGE_BUDGET } else { BUDGET }
}

/// A deserializer whose structs are maps, and a visitor, seed or access that passes this on to what is inside.
pub(crate) struct Strict<'b, T> {
    inner: T,
    left: &'b Cell<usize>,
}

impl<'b, T> Strict<'b, T> {
    /// Reads from `inner` until nothing is left of the budget.
    pub(crate) fn new(inner: T, left: &'b Cell<usize>) -> Self {
        Self { inner, left }
    }
}

/// Takes so many bytes of the budget.
fn spend<E: Error>(left: &Cell<usize>, bytes: usize, what: &str) -> Result<(), E> {
    let Some(rest) = left.get().checked_sub(bytes) else {
        return Err(E::custom(format_args!("{TOO_LARGE}: its {what} have too many entries")));
    };
    left.set(rest);
    Ok(())
}

macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method(Strict::new(visitor, self.left))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_map(Strict::new(visitor, self.left))
    }

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_unit_struct(name, Strict::new(visitor, self.left))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_newtype_struct(name, Strict::new(visitor, self.left))
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_tuple(length, Strict::new(visitor, self.left))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_tuple_struct(name, length, Strict::new(visitor, self.left))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_enum(name, variants, Strict::new(visitor, self.left))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visit {
    ($($method:ident: $value:ty)*) => {
        $(fn $method<E: Error>(self, value: $value) -> Result<Self::Value, E> {
            self.inner.$method(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.expecting(formatter)
    }

    visit! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128 visit_u8: u8
        visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128 visit_f32: f32 visit_f64: f64 visit_char: char
        visit_str: &str visit_borrowed_str: &'de str visit_string: String visit_bytes: &[u8]
        visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_some(Strict::new(deserializer, self.left))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_newtype_struct(Strict::new(deserializer, self.left))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_seq(Strict::new(entries, self.left))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_map(Strict::new(entries, self.left))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variants: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_enum(Strict::new(variants, self.left))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.deserialize(Strict::new(deserializer, self.left))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        spend(self.left, size_of::<S::Value>(), "lists")?;
        self.inner.next_element_seed(Strict::new(seed, self.left))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        spend(self.left, size_of::<S::Value>() * ENTRY, "maps")?;
        self.inner.next_key_seed(seed)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        self.inner.next_value_seed(Strict::new(seed, self.left))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'b, A: EnumAccess<'de>> EnumAccess<'de> for Strict<'b, A> {
    type Error = A::Error;
    type Variant = Strict<'b, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Self::Error> {
        self.inner.variant_seed(seed).map(|(variant, content)| (variant, Strict::new(content, self.left)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Strict<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), Self::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Self::Error> {
        self.inner.newtype_variant_seed(Strict::new(seed, self.left))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.inner.tuple_variant(length, Strict::new(visitor, self.left))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.struct_variant(fields, Strict::new(visitor, self.left))
    }
}

#[cfg(test)]
mod tests {
    use jobset_api::JobSet;
    use rstest::rstest;
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;

    fn read(object: &Value) -> Result<JobSet, serde_json::Error> {
        let text = object.to_string();
        let mut json = serde_json::Deserializer::from_str(&text);
        let left = Cell::new(BUDGET);
        let strict = JobSet::deserialize(Strict::new(&mut json, &left));
        assert!(strict.is_err() || serde_json::from_str::<JobSet>(&text).ok() == strict.as_ref().ok().cloned());
        strict
    }

    fn jobset() -> Value {
        json!({ "metadata": { "name": "train" }, "spec": {
            "network": {}, "failurePolicy": { "rules": [{ "action": "FailJobSet", "onJobFailureReasons": ["a"] }] },
            "replicatedJobs": [{ "name": "a", "replicas": 2, "template": { "spec": { "template": { "spec": {
                "containers": [{ "name": "b", "livenessProbe": { "httpGet": { "port": "http" } } }] } } } } }],
        } })
    }

    #[test]
    fn as_many_entries_as_fit_are_read_and_no_more() {
        let with = |count: usize| {
            let mut object = jobset();
            object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"] =
                json!(vec![json!({}); count]);
            object
        };
        assert!(read(&with(1000)).is_ok());
        let error = read(&with(100_000)).unwrap_err().to_string();
        assert!(error.starts_with("the object is too large: its lists have too many entries"), "{error}");
    }

    #[test]
    fn as_many_labels_as_fit_are_read_and_no_more() {
        let with = |count: usize| {
            let mut object = jobset();
            let labels: serde_json::Map<_, _> = (0..count).map(|number| (format!("{number:x}"), json!(""))).collect();
            object["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] =
                json!({ "labels": labels });
            object
        };
        // More than fit into the 1.5 MiB that etcd stores.
        assert!(read(&with(150_000)).is_ok());
        let error = read(&with(200_000)).unwrap_err().to_string();
        assert!(error.starts_with("the object is too large: its maps have too many entries"), "{error}");
    }

    #[test]
    fn an_object_is_read_as_ever() {
        assert!(read(&jobset()).is_ok());
    }

    #[rstest]
    #[case("")]
    #[case("/spec")]
    #[case("/spec/network")]
    #[case("/spec/failurePolicy/rules/0")]
    #[case("/spec/replicatedJobs/0/template/spec/template")]
    fn a_list_is_no_object(#[case] place: &str) {
        let mut object = jobset();
        *object.pointer_mut(place).unwrap() = json!([]);
        let error = read(&object).unwrap_err().to_string();
        assert!(error.contains("invalid type: sequence, expected "), "{error}");
    }
}
