//! The controller on a real API server with the real Job controller, and no nodes: Pods stay Pending, and the tests
//! write what agents would.

mod bench;
mod buckets;
mod children;
mod claims;
mod elastic;
mod epochs;
mod expect;
mod fixture;
mod invalid;
mod jobsets;
mod kubelet;
mod kueue;
mod leader;
mod manifests;
mod metrics;
mod namespace;
mod placement;
mod pods;
mod program;
mod recreate;
mod resume;
mod rivals;
mod shared;
mod startup;
mod strays;
mod success;
mod suspend;
mod taken;
mod ttl;
mod weather;
