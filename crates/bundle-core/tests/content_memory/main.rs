//! Limits of the memory that the program allocates for content. The *weight* of content is an upper
//! estimate of the memory of its parsed and rendered objects.
//!
//! - Calculating the weight allocates at most a constant amount of memory.
//! - Parsing and rendering allocate at most the sum of the weight and this constant amount. Content
//!   that needs more memory is rejected.
//! - Calculating the permissions that roles grant allocates at most a constant amount of memory.
//! - Measuring and hashing the JSON of an object allocates at most a constant amount of memory.

mod configurations;
mod documents;
mod json_output;
mod rendering;
mod roles;

use std::sync::{Mutex, MutexGuard, PoisonError};

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Memory for keys and events that the parser stores, in bytes (`yaml::limits`). This memory does
/// not depend on the content.
const CONSTANT: usize = 12 << 20;

/// The allocator counts all threads, so one test runs at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the peak of the memory that `work` allocates, in bytes, and the result of `work`.
fn peak<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (ALLOCATOR.peak_usage().saturating_sub(before), result)
}
