//! The engine from outside: what is next, as events, answers and failures come in.

mod faults;
mod missing_agents;
mod places;
mod schedule;
mod slow_cluster;
mod stored;
