//! How many tests work on clusters and control planes at once. A test that waits until another one leaves its cluster has no seat, so
//! nobody waits for the two.

use std::cell::RefCell;

use anyhow::{Context, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

/// More of them miss their limits on two cores.
static SEATS: Semaphore = Semaphore::const_new(4);

thread_local! {
    /// The seat of the test of this thread, until the test ends.
    static SEAT: RefCell<Option<SemaphorePermit<'static>>> = const { RefCell::new(None) };
}

/// Waits for a seat, unless this test has one.
pub(crate) async fn take_seat() -> Result<()> {
    if SEAT.with_borrow(Option::is_none) {
        let seat = SEATS.acquire().await.context("there are no seats any more")?;
        SEAT.set(Some(seat));
    }
    Ok(())
}
