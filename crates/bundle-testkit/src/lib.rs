//! Test doubles with faults that real servers do not produce on demand: registries that send wrong
//! bytes, stall or truncate. Other crates use this crate only as a dev-dependency.

pub mod file_server;
pub mod registry;

pub use registry::{Fault, Login, Ranges, Registry, Settings, UploadFault};
