//! The pod: admission for bundles, and the reconciler that installs them. Each long-lived task has its own module.
//! Not here: any rule about bundles, policies or rights (bundle-core, bundle-trust); these are the shells around them.

pub mod args;
pub mod cluster;
pub mod metrics;
pub mod settings;
pub mod shared;
pub mod shelf;

/// An error whose kind no caller tells apart: it ends a task and is told.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
