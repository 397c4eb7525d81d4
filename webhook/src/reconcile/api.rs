//! Functions for requests to the API server: discovery, reads of objects, and parallel requests.

pub(super) use bundle_cluster::object::whole;
pub(super) use bundle_cluster::{discovery, object, parallel};
