//! The program of the webhook pod: the admission webhook for bundles, and the reconciler that
//! installs bundles. Each long-running task has its own module. The crates `bundle-core` and
//! `bundle-trust` contain the rules.

pub mod admission;
mod api_server;
mod archives;
pub mod attempts;
pub mod budget;
pub mod caller;
pub mod certs;
pub mod clients;
pub mod config;
mod content_service;
pub mod lease;
pub mod object_cache;
pub mod readiness;
pub mod reconcile;
pub mod registrations;
mod retry;
pub mod run;
pub mod server;
pub mod shared;
pub mod signals;
pub mod sources;
mod stored_object;
pub mod telemetry;
mod uploads;
mod watches;

pub use bundle_cluster::chain;
use bundle_cluster::{blocking, dry_run};

/// An error that ends a task and is only logged.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
