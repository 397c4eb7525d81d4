//! Memory, watches and reconciles of the reconciler that a tenant can use with objects.

mod installed_objects;
mod labelled_objects;
mod many_deployments;
mod removals;
mod slots;
mod watches;

use super::*;
