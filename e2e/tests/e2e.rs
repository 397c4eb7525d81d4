//! The one binary of end-to-end tests: scenarios on real clusters.
//! How a cluster is made is in the library; each file of `scenarios` tells about one subject.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a scenario fails by panicking, also in its helpers"
)]

mod scenarios;
