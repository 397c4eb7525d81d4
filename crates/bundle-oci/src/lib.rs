//! Bundles as OCI artifacts: packing, unpacking, image layouts and a registry client.

pub mod archive;
mod attached;
pub mod blob;
pub mod chart;
mod clock;
pub mod folder;
pub mod hash;
pub mod layout;
pub mod limits;
pub mod manifest;
pub mod media;
pub mod pack;
pub mod progress;
pub mod registry;
pub mod store;
pub mod transfer;
pub mod unpack;

pub use bundle_core::format::Files;
pub use limits::Limits;
