//! Limits for one tenant who creates many objects: memory of the reconciler, number of watches, and
//! number of concurrent reconciles.

mod installed_objects;
mod labelled_objects;
mod many_deployments;
mod removals;
mod slots;
mod watches;

use super::*;
