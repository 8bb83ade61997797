//! Whole reconciliations: all rules together. `golden` compares plans with snapshots; the other modules use tables.

mod attempts;
mod bounds;
mod budget;
mod deadline;
mod fixture;
mod golden;
mod notes;
mod sizes;
mod start;
mod world;
