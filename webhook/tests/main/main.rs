//! The admission service from outside: over TLS, as a process, and registered with a real API server.

// Test code outside of the functions marked as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod abuse;
mod answer;
mod api_server;
mod avoided;
mod avoided_lookup;
mod bench;
mod black_hole;
mod busy;
mod certificates;
mod check;
mod client;
mod cluster;
mod deploy;
mod documents;
mod exclusive;
mod forged;
mod fuzz;
mod injection;
mod issuer;
mod kept;
mod lifecycle;
mod load;
mod manifests;
mod metrics;
mod mounted;
mod overload;
mod placement;
mod placement_job;
mod placement_lookup;
mod placement_policy;
mod placement_review;
mod process;
mod refusals;
mod resources;
mod rotation;
mod server;
mod strangers;
mod tables;
mod topology_keys;
mod turns;
mod unreachable;
mod unread;
mod updates;
