//! What admission decides: specs as they are read, classes, stamps, and the judge over all of it.
//! Not here: asking anybody anything. The webhook and `kubectl bundle check` gather the facts and call the same judge.

mod canonical;
pub mod class;
pub mod deployment;
mod fields;
pub mod source;
pub mod stamp;

pub use canonical::{same, spec_digest, template_hash};
pub use class::Class;
pub use deployment::CheckedDeploymentSpec;
pub use source::{CheckedBundleSpec, Source};
pub use stamp::{Requester, Stamp, StampError, check, seal};
