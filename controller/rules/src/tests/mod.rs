//! Whole reconciliations: all rules together. `golden` compares plans with snapshots; the other modules use tables.

mod attempts;
mod bounds;
mod budget;
mod deadline;
mod failure;
mod finished;
mod fixture;
mod golden;
mod notes;
mod restart;
mod skip;
mod start;
mod success;
mod tally;
mod world;
