//! Test doubles with faults that real servers do not produce on demand: registries that send wrong
//! bytes, stall or truncate. Also test data for several crates. Other crates use this crate only as
//! a dev-dependency.

pub mod file_server;
pub mod registry;
mod unsafe_paths;

pub use registry::{Fault, Login, Ranges, Registry, RoundCount, Settings, UploadFault};
pub use unsafe_paths::UNSAFE_PATHS;
