//! The protocol, model-checked: all lives of a small JobSet that restarts in place, one after the other.
//!
//! The real programs are in it, not their likeness: the state machine of the agents ([`jobset_agent::decide::Agent`], as
//! sidecar and as supervisor), what the engine remembers of each slot ([`jobset_store::pods`]: which workers it has observed
//! running, which Pods it suspects, which were told to restart), and the rules ([`jobset_rules::plan`]). Around them: an API server, the agents'
//! watches, the controller's watches, kubelets, supervisors' workers, the Job controller and the user. [`simulation`] draws
//! ten thousand long lives of large JobSets by chance; this walks through **every** life of a small one.
//!
//! [`simulation`]: crate::simulation
//!
//! # What may happen
//!
//! In any order, and each as late as can be: see [`system`]. A [`setting::Setting`] says how many Pods there are, who
//! is late besides the agents, and what goes wrong how often: workers fail, agents restart (a sidecar alone), Pods restart,
//! are evicted or vanish and are replaced, reports or their answers get lost, statuses and events are dropped, the
//! controller crashes and what it has sent arrives after its successor has begun, the user suspends and resumes. In settings of their own,
//! workers make no progress any longer, one after the other: the group restarts once none does.
//!
//! In some settings agents know a relay: [`stream`]. The real state machine of their two channels is in it
//! ([`jobset_agent::channels::Channels`]), and what the engine remembers of reports over the stream
//! ([`jobset_store::pods::StreamReports`]). The leader's side follows the rules of [`crate::Desk`], which the simulation drives
//! itself. In settings of their own, the relays are hostile: [`hostile`].
//!
//! Slots have no order: states that differ by the indexes of their Pods are one state.
//!
//! # What has to hold
//!
//! The first five of [`Property`](super::Property), 1 to 5 of `docs/src/protocol.md`, "What is proved". Barrier, restarts and budget
//! are checked in each step, against what has truly happened ([`state::ModelSlot`]).
//!
//! That nobody hangs is shown in three parts. The states are finitely many, or the walk would not end. No way leads back to a
//! state ([`explorer`]). So whatever happens comes to an end: a state in which nothing is left to happen, unless something goes
//! wrong again. In each of these, all workers run in one epoch, or the JobSet has ended, or is suspended and nothing is left of
//! it. That none runs on in an older epoch is checked there, too: until then it may, for a time.
//!
//! What a hostile relay does has no end, so ways through it may lead back. In its place, each agent in each state must be told soon
//! whatever relays do from then on: by its watch, once its silence and its wait for the stream are over.
//!
//! [`tests`] shows of each property that it can fail. Where the protocol assumes something, a test shows what happens
//! without it: a first read that is stale, a version of the JobSet that is not the newest.
//!
//! # How to run it
//!
//! ```text
//! cargo test -p jobset-engine --lib model -- --nocapture      # with the number of states
//! make model                                                      # three Pods in each setting, more faults: long
//! ```
//!
//! # What is left out
//!
//! Workers that succeed, several Jobs and JobSets, resizing, a podFailurePolicy, in-place restart switched off, workers that save their
//! state, SIGTERM to an agent, the watch on Jobs being late. Pods that were deleted by force leave nothing behind.

mod controller;
mod effects;
mod explorer;
mod hostile;
mod link;
mod node;
mod properties;
mod setting;
mod state;
mod stream;
mod system;
mod tests;
