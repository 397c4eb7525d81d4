//! Requests to the API server about installed objects.

pub(super) use bundle_cluster::object::whole;
pub(super) use bundle_cluster::{discovery, object, parallel};
