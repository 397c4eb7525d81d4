//! Versions: of servers as they report themselves, ranges of them, whether a bundle fits a server, and which APIs a version serves.
//! Not here: what versions other packages have.

pub mod apis;
mod compat;
pub mod helm;
mod range;
mod server;

pub use compat::{Kubernetes, Unsupported, fits, fits_named};
pub use range::Range;
pub use server::{Minor, ServerVersion};
