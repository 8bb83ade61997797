//! `logs`: the logs of all workers of a JobSet, by epoch.
//!
//! A supervised worker runs in one container from epoch to epoch, whose log its agent divides ([`epochs`]). Beside a sidecar, each epoch
//! has a container of its own, of which the kubelet keeps the present one, and sometimes the one before ([`source`]). Which lines of a
//! log are shown is decided by [`lines`]; which workers have failed, by [`failed`].
//!
//! [`follow`] reads the logs, and [`reader`] one of them. [`followed`] goes on where one ends: [`container_run`] decides whether there
//! is more, and [`cursor`] from where.

mod container_run;
mod cursor;
mod epochs;
mod failed;
mod follow;
mod followed;
mod lines;
mod reader;
mod source;
#[cfg(test)]
mod tests;

pub use follow::show;
