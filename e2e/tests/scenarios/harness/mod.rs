//! The harness itself: clusters, existing clusters, and the commands of the demo.

mod clusters;
mod existing_cluster;
mod story;
