//! The JobSet API: types, names and rules that two deployables must agree on.
