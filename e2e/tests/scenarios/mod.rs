//! The subjects. A scenario fails by panicking, so that its cluster's logs are kept.

mod cosign;
mod guest;
mod admission;
mod harness;
mod page;
mod pod;
mod readme;
mod reconcile;
mod story;
