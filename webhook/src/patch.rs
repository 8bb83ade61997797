//! The JSON patch that turns an object as it was sent into the object as it should be stored.

use serde::Serialize;

/// Patches that change an object from `before` to `after`.
///
/// Both are of one type, read from the same request: what that type does not know is in neither, so the patch leaves it
/// alone. A patch from the object as it was sent would remove it.
///
/// The patch applies to the object as it was sent only where that has what `before` has. A default that a rule adds must
/// therefore go into a parent that was sent, and not into one that the type itself makes up when it is absent.
///
/// # Errors
/// When a value cannot be written as JSON.
pub fn diff<T: Serialize>(before: &T, after: &T) -> Result<json_patch::Patch, serde_json::Error> {
    Ok(json_patch::diff(&serde_json::to_value(before)?, &serde_json::to_value(after)?))
}
