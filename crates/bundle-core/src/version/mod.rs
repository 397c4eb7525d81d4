//! Versions: of servers as they report themselves, ranges of them, and whether a bundle fits a server.
//! Not here: which APIs a version serves.

mod compat;
mod range;
mod server;

pub use compat::{Kubernetes, Unsupported, fits, fits_named};
pub use range::Range;
pub use server::{Minor, ServerVersion};
