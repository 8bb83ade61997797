//! What the pages show, and what of it has changed: pure values and functions.
//!
//! [`Boards`] has a [`Board`] for each JobSet whose page is open, and the list of all. Each part of a board knows the revision in which it changed
//! last. A page names the revision that it shows, and gets the parts that have changed since: of the grid of Pods, the changed
//! cells. So the size of an update is bounded, and a slow page gets fewer updates instead of a queue of them.

mod board;
mod boards;
mod cell;
mod grid;
mod list;
#[cfg(test)]
mod tests;

pub use board::{Board, JobSetUpdate};
pub use boards::Boards;
pub use cell::{Cell, CellKind};
pub use grid::{CellChange, Grid, GridSnapshot, GroupLayout, JobLayout};
pub use list::{ListBoard, ListUpdate};

/// Counts the changes of the boards. 0 is before the first one.
pub type Revision = u64;
