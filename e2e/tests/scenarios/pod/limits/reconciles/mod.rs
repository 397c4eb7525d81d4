//! Memory, watches and reconciles that a tenant can take from the reconciler with objects.

mod installed_objects;
mod labelled_objects;
mod many_deployments;
mod removals;
mod slots;
mod watches;

use super::*;
