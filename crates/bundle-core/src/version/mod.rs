//! Versions: server versions, ranges, compatibility of bundles, and the built-in APIs of each
//! Kubernetes version.

pub mod apis;
mod compat;
pub mod helm;
mod range;
mod server;

pub use compat::{Kubernetes, Unsupported, fits, fits_named};
pub use range::Range;
pub use server::{Minor, OLDEST_SERVER, ServerVersion};
