//! Reads structs from JSON objects alone, and no more than there is memory for.
//!
//! `serde` reads a struct from a list, too, as its fields in their order: `spec: []` is a specification without any. The
//! API server knows no such thing. Its webhooks are called before it compares an object with the schema, and a patch for
//! such an object would not apply.

use std::cell::Cell;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

/// What an entry of a map takes, in times of its key: key and value, and room in the tree. The key of a struct is one byte,
/// which stands for a field.
const MAP_ENTRY: usize = 4;
/// What the allocator adds to a text.
const ALLOCATION: usize = 16;
/// What the error begins with that ends reading when a [`Meter`] has run out.
pub const TOO_LARGE: &str = "the object is too large";

/// Counts the memory that is taken, up to a limit.
#[derive(Debug)]
pub struct Meter {
    limit: usize,
    left: Cell<usize>,
}

impl Meter {
    /// A meter that has counted nothing. The limit is in bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, left: Cell::new(limit) }
    }

    /// The bytes that it has counted.
    pub fn spent(&self) -> usize {
        self.limit - self.left.get()
    }

    fn spend<E: Error>(&self, bytes: usize, what: &str) -> Result<(), E> {
        let Some(rest) = self.left.get().checked_sub(bytes) else {
            self.left.set(0);
            return Err(E::custom(format_args!("{TOO_LARGE}: its {what}")));
        };
        self.left.set(rest);
        Ok(())
    }

    fn spend_text<E: Error>(&self, text: &str) -> Result<(), E> {
        if text.is_empty() { Ok(()) } else { self.spend(text.len() + ALLOCATION, "texts are too long") }
    }
}

/// A deserializer whose structs are maps, and a visitor, seed or access that passes this on to what is inside.
#[derive(Debug)]
pub struct Metered<'m, T> {
    inner: T,
    meter: &'m Meter,
}

impl<'m, T> Metered<'m, T> {
    /// Reads from `inner` until the meter has run out.
    pub fn new(inner: T, meter: &'m Meter) -> Self {
        Self { inner, meter }
    }
}

struct Entries<'m, A> {
    inner: A,
    meter: &'m Meter,
    count: usize,
    capacity: usize,
}

macro_rules! forward {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method(Metered::new(visitor, self.meter))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Metered<'_, D> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_map(Metered::new(visitor, self.meter))
    }

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_bytes deserialize_byte_buf deserialize_option
        deserialize_unit deserialize_seq deserialize_map deserialize_identifier deserialize_ignored_any
    }

    // JSON shows what these are.
    serde::forward_to_deserialize_any! { unit_struct tuple tuple_struct }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_newtype_struct(name, Metered::new(visitor, self.meter))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.deserialize_enum(name, variants, Metered::new(visitor, self.meter))
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

impl<'de, V: Visitor<'de>> Visitor<'de> for Metered<'_, V> {
    type Value = V::Value;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.expecting(formatter)
    }

    visit! {
        visit_bool: bool visit_i8: i8 visit_i16: i16 visit_i32: i32 visit_i64: i64 visit_i128: i128 visit_u8: u8
        visit_u16: u16 visit_u32: u32 visit_u64: u64 visit_u128: u128 visit_f32: f32 visit_f64: f64 visit_char: char
        visit_bytes: &[u8] visit_borrowed_bytes: &'de [u8] visit_byte_buf: Vec<u8>
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        self.meter.spend_text(text)?;
        self.inner.visit_str(text)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        self.meter.spend_text(text)?;
        self.inner.visit_borrowed_str(text)
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
        self.meter.spend_text(&text)?;
        self.inner.visit_string(text)
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        self.inner.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_some(Metered::new(deserializer, self.meter))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.visit_newtype_struct(Metered::new(deserializer, self.meter))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_seq(Entries { inner: entries, meter: self.meter, count: 0, capacity: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_map(Metered::new(entries, self.meter))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variants: A) -> Result<Self::Value, A::Error> {
        self.inner.visit_enum(Metered::new(variants, self.meter))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Metered<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.inner.deserialize(Metered::new(deserializer, self.meter))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Entries<'_, A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        let entry = self.inner.next_element_seed(Metered::new(seed, self.meter))?;
        if entry.is_some() {
            self.count += 1;
            // A list that is full doubles.
            if self.count > self.capacity {
                let size = size_of::<S::Value>();
                let capacity =
                    if size > 1024 { self.count.next_power_of_two() } else { self.count.next_power_of_two().max(4) };
                self.meter.spend((capacity - self.capacity) * size, "lists have too many entries")?;
                self.capacity = capacity;
            }
        }
        Ok(entry)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, Self::Error> {
        // The name of a field is not kept.
        let key = if size_of::<S::Value>() <= 1 {
            self.inner.next_key_seed(seed)?
        } else {
            self.inner.next_key_seed(Metered::new(seed, self.meter))?
        };
        if key.is_some() {
            self.meter.spend(size_of::<S::Value>() * MAP_ENTRY, "maps have too many entries")?;
        }
        Ok(key)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Self::Error> {
        self.inner.next_value_seed(Metered::new(seed, self.meter))
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 'm, A: EnumAccess<'de>> EnumAccess<'de> for Metered<'m, A> {
    type Error = A::Error;
    type Variant = Metered<'m, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), Self::Error> {
        self.inner.variant_seed(seed).map(|(variant, content)| (variant, Metered::new(content, self.meter)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Metered<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), Self::Error> {
        self.inner.unit_variant()
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Self::Error> {
        self.inner.newtype_variant_seed(Metered::new(seed, self.meter))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Self::Error> {
        self.inner.tuple_variant(length, Metered::new(visitor, self.meter))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        self.inner.struct_variant(fields, Metered::new(visitor, self.meter))
    }
}
