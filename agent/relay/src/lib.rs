//! The relay between agents and the leading controller.
//!
//! ```text
//! agents --TLS, token--> jobset-relay <--dials, mTLS-- leading controller
//! ```
//!
//! Agents connect and say who they are by their token ([`auth`]). The leading controller dials every relay. A relay tells each
//! connected controller what its agents do, and passes on to agents what a controller has signed. It keeps nothing: agents and
//! controllers that lose it connect again, and a controller that connects is told of all agents.
//!
//! [`hub`] and [`auth::judge`] decide, and are pure. [`agents`] and [`controllers`] have the connections.

pub mod agents;
pub mod args;
pub mod auth;
pub mod controllers;
mod counted;
mod files;
mod health;
mod hellos;
pub mod hub;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod run;
mod shared;
mod tls;
