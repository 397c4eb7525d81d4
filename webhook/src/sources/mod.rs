//! Where content comes from: the ways to each kind of source.
//! Not here: what is done with content (reconcile), and whether it may be used (admission).

mod registries;

pub use registries::{PullSecretError, Registries};
