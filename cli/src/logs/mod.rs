//! `logs`: the logs of all workers of a JobSet, by epoch.
//!
//! A supervised worker runs in one container from epoch to epoch, whose log its agent divides ([`epochs`]). Beside a sidecar, each epoch
//! has a container of its own, of which the kubelet keeps the present one, and sometimes the one before ([`source`]). [`follow`] reads
//! them, and [`reader`] one of them.

mod epochs;
mod follow;
mod reader;
mod source;

pub use follow::show;
