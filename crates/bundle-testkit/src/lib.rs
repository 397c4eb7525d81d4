//! Test doubles for faults that real parts will not produce on demand: lying, stalling, truncating registries.
//! Not here: anything that ships; this crate is a dev-dependency only.

pub mod registry;

pub use registry::{Fault, Login, Ranges, Registry, Settings, Uploads};
