//! Counts what a test allocates, thread by thread. A program that depends on this crate has its allocator, so only tests may.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static COUNTING: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<Allocations> = const { Cell::new(Allocations { count: 0, bytes: 0, held: 0, most: 0 }) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allocations {
    pub count: usize,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Bytes that were not freed.
    pub held: isize,
    /// Most bytes that were held at a time.
    pub most: isize,
}

/// What `work` returns, and what it has allocated.
pub fn counted<T>(work: impl FnOnce() -> T) -> (T, Allocations) {
    let before = ALLOCATIONS.get();
    ALLOCATIONS.set(Allocations { most: before.held, ..before });
    let result = work();
    let after = ALLOCATIONS.get();
    ALLOCATIONS.set(Allocations { most: after.most.max(before.most), ..after });
    let (count, bytes) = (after.count - before.count, after.bytes - before.bytes);
    let (held, most) = (after.held - before.held, after.most - before.held);
    (result, Allocations { count, bytes, held, most })
}

struct Counting;

/// What an allocation of this size takes of the heap: the allocator of Linux rounds up to 16 bytes, and adds 8.
fn taken(size: usize) -> isize {
    isize::try_from((size + 8).next_multiple_of(16)).unwrap_or(isize::MAX)
}

fn count(allocated: usize, held: isize) {
    // A thread that ends has no counts any more.
    let _ = ALLOCATIONS.try_with(|counts| {
        let mut now = counts.get();
        now.count += usize::from(allocated > 0);
        now.bytes += allocated;
        now.held += held;
        now.most = now.most.max(now.held);
        counts.set(now);
    });
}

// SAFETY: each request is passed on as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, taken(size) - taken(layout.size()));
        // SAFETY: see above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
