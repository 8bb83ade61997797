//! How much memory an object takes once it is read into its types.
//!
//! JSON says little about that: an empty volume is two bytes on the wire, and three kilobytes in memory, since its type has room
//! for each kind of volume. So [`Metered`] counts while an object is read, by the sizes of the types themselves: for each list
//! the entries that it has room for, for each map its entries, and all texts. Reading ends where a [`Meter`] runs out, so that no
//! more memory is ever taken than it allows.

mod heaviest;
mod metered;

use serde::{Deserialize, Deserializer};

pub use heaviest::{HeaviestPart, heaviest_part};
pub use metered::{Meter, Metered, TOO_LARGE};

/// Default limit for the weight of the specification of a JobSet, in bytes.
///
/// 20 replicatedJobs whose Pods have 30 volumes and 5 containers with 60 variables and 30 mounts each take four fifths of it.
pub const MAX_SPEC: usize = 8 << 20;

/// A value with its weight.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Weighed<T> {
    pub value: T,
    /// The memory that it takes besides its own size, in bytes.
    pub weight: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Weighed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let meter = Meter::new(usize::MAX);
        let value = T::deserialize(Metered::new(deserializer, &meter))?;
        Ok(Self { value, weight: meter.spent() })
    }
}

/// Reads a value from JSON as long as it weighs at most `limit` bytes.
///
/// # Errors
/// If the text is no such value, or the value is heavier. [`is_too_heavy`] tells which.
pub fn read<T: for<'de> Deserialize<'de>>(json: &str, limit: usize) -> Result<Weighed<T>, serde_json::Error> {
    let (mut json, meter) = (serde_json::Deserializer::from_str(json), Meter::new(limit));
    let value = T::deserialize(Metered::new(&mut json, &meter))?;
    json.end()?;
    Ok(Weighed { value, weight: meter.spent() })
}

/// Whether [`read`] has ended because the value is too heavy.
pub fn is_too_heavy(error: &serde_json::Error) -> bool {
    error.to_string().starts_with(TOO_LARGE)
}

#[cfg(test)]
mod tests;
