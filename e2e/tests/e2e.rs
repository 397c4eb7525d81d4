//! Test binary of all end-to-end scenarios on real clusters. Each file of `scenarios` has one
//! subject.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario fails by panicking, also in its helpers"
)]

mod scenarios;
