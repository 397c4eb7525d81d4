//! The harness itself: clusters, existing clusters, and the commands of the demo.

mod clusters;
mod demo;
mod existing_cluster;
