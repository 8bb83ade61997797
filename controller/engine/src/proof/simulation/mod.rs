//! Properties of the pure core, held under ten thousand simulated lives of a JobSet.
//!
//! Around the engine that runs in the cluster, and the real state machine of the agents, everything else is simulated: the
//! API server ([`api`]) and the controller's watches on it ([`watches`]), the Job controller ([`jobs`]), kubelets
//! ([`kubelets`]), agents ([`agents`]; in a third of the lives that restart in place, the parents of their workers:
//! [`supervisors`]), other tenants ([`tenants`]), and the requests of the controller ([`controller`]). A seed draws the JobSet
//! ([`scenario`]), who is quick and who is slow, and what goes wrong and when ([`faults`]). Then the faults stop, everybody
//! does what there is to do, and the JobSet has to come to rest ([`cluster`]). The same seed is the same life.
//!
//! # What may happen
//!
//! - Workers exit: with a code that restarts their Pod, with one that a podFailurePolicy fails the Job for, with 0; several
//!   at once.
//! - An agent restarts alone, a supervisor with its worker; a Pod fails at the barrier, before its worker could start.
//! - A Pod is evicted or preempted (DisruptionTarget), deleted by force (it vanishes, and its containers linger), or its
//!   node is lost: nothing is heard of it until the control plane gives it up.
//! - In a third of the lives, a kubelet refuses Pods, new ones and some that ran; Pods fail in their first init container; a node
//!   restarts, and its supervised Pods get no other sandbox; a sidecar ends whenever it starts once its Pod has restarted
//!   ([`nodes`], [`returns`]).
//! - In a third of the lives, nodes are cordoned, several at once. In a quarter of those that restart in place, Pods of lost nodes are
//!   given up by the controller alone, and a node may come back ([`cordons`]).
//! - In a quarter of the lives that restart in place, names take time to settle ([`names`]). An address changes when a Pod is
//!   replaced, or its node restarts.
//! - A worker that is asked to go exits 143, or 0 as if it had done its work.
//! - A kubelet writes a status late, or never, because the next one supersedes it. The agent's report and the kubelet's
//!   status come in any order.
//! - A report gets lost, or its answer does; an agent sees the JobSet late, and not every version of it.
//! - Each watch of the controller lags by itself, or is lost and begins again with a listing.
//! - The controller crashes between any two of its requests; requests that it had sent arrive after its successor has
//!   begun, its status write among them.
//! - The user suspends, resumes, resizes and deletes single Jobs while all this goes on, so that status writes conflict.
//! - The cluster is full: Pods that join the group by a growth find no node.
//! - The answer to a status write gets lost. A plan panics.
//! - Requests are slow: they are carried out, or fail, after their work has ended ([`slow`]).
//! - Another tenant creates a JobSet of more Jobs than one work creates.
//! - In half of the lives that restart in place, agents know a relay, and the real desk of the leader speaks with them:
//!   connections break, relays restart or lose the leader, nobody reaches them, the leader does not read for a while, and one that
//!   was stopped wakes and says what it had to say, also just when an agent is born ([`relays`], [`streams`]).
//! - In a third of those, relays are hostile, for ever: they withhold what is about the JobSet and pass on what is not, drop, keep
//!   back, reorder and repeat statements, swallow and repeat reports, hide agents from the leader, and tell it of agents that have gone
//!   and of ends of connections that live ([`hostile`]).
//! - A Job fails by its deadline, its backoffLimit or its podFailurePolicy.
//! - In a quarter of the lives, Jobs have a success policy: workers exit 0, and others of their Job fail before, with or after
//!   them. The Job controller says later that the policy is met ([`successes`]).
//! - In a twelfth of the lives, sizes are at the ends of their integers, and change between them ([`extremes`]).
//! - In a quarter of the lives, workers that are asked to go take their time.
//! - Pods that a Job is to lose live on for a while, restart in place and report with the others ([`leaving`]). Their slots
//!   come back, or do not.
//! - In a quarter of the lives that restart in place, Pods leave nodes on which workers keep failing: a node is bad, or an index is, new Pods
//!   find no other node, or the Pod webhook is away; some Pods select their node ([`moves`]).
//! - In a quarter of the lives, somebody asks for restarts at any time ([`restart_requests`]).
//! - In a quarter of the lives that restart in place, workers make no progress, all or one of them, and their agents say so, late or over
//!   the stream ([`stalls`]). What is seen of one may tell that it holds the others up. Workers tell of steps, which rise or not, and in half
//!   of these lives restarts without progress are limited ([`steps`]).
//! - In some lives, the JobSet has a deadline of its own, or its executions are numbered.
//!
//! # What has to hold
//!
//! Each [`Property`](super::Property). [`broken`] shows for each of them that it can fail.
//!
//! # How to run it
//!
//! ```text
//! cargo test -p jobset-engine --lib simulation
//! SIMULATION_SEEDS=100000 SIMULATION_FROM=10000 cargo test -p jobset-engine --lib simulation
//! SIMULATION_SEED=4711 cargo test -p jobset-engine --lib properties_hold -- --nocapture    # one, event by event
//! ```
//!
//! # What is left out
//!
//! Exclusive placement, claims, TTL, another manager, the gate switched off, reports that are no epoch, a node that was out of reach
//! and comes back with workers that have run on, and the pause of status writes that only change counts.

mod agents;
mod api;
mod backoff;
pub(super) mod blames;
mod broken;
mod cluster;
mod controller;
mod cordons;
mod coverage;
mod executions;
mod extremes;
mod faults;
mod hostile;
mod jobs;
mod kubelets;
mod leaving;
mod ledger;
mod machine;
mod moves;
mod names;
mod nodes;
mod planner;
mod properties;
mod relays;
mod requests;
mod rest;
mod restart_requests;
mod returns;
mod scenario;
mod slots;
mod slow;
mod stalls;
mod steps;
mod streams;
mod successes;
mod supervisors;
mod tenants;
mod truth;
mod watches;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeds where nothing else is said.
const SEEDS: u64 = 10_000;
/// Events that a failure shows.
const LAST: usize = 120;
/// Failures after which no further seeds are tried.
const ENOUGH: usize = 5;

#[test]
fn properties_hold_under_every_seed() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    if let Some(seed) = number("SIMULATION_SEED") {
        let lines = cluster::trace(seed, None);
        println!("{}", lines.join("\n"));
        assert!(cluster::run(seed, None).is_ok(), "seed {seed}: {}", lines.last().unwrap());
        return;
    }
    let from = number("SIMULATION_FROM").unwrap_or(0);
    let until = from + number("SIMULATION_SEEDS").unwrap_or(SEEDS);
    let (next, failures) = (AtomicU64::new(from), Mutex::new(Vec::new()));
    let work = || {
        while failures.lock().unwrap().len() < ENOUGH {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= until {
                break;
            }
            if let Some(failure) = failure(seed) {
                failures.lock().unwrap().push((seed, failure));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut failures = failures.into_inner().unwrap();
    failures.sort();
    let failures: Vec<String> = failures.into_iter().map(|(_, failure)| failure).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

/// What is wrong under this seed, and how to see it again.
fn failure(seed: u64) -> Option<String> {
    let again = format!("SIMULATION_SEED={seed} cargo test -p jobset-engine --lib properties_hold -- --nocapture");
    match catch_unwind(AssertUnwindSafe(|| cluster::run(seed, None))) {
        Ok(Ok(())) => None,
        Ok(Err((violation, trace))) => {
            let last = trace[trace.len().saturating_sub(LAST)..].join("\n");
            Some(format!("{last}\nseed {seed}: {violation}\nagain: {again}"))
        }
        Err(_) => Some(format!("seed {seed}: panicked\nagain: {again}")),
    }
}
