//! Harness for end-to-end tests: tools built from their Go modules, clusters, registries, and the
//! two programs of this project. The scenarios are in `tests/scenarios`.
#![allow(
    clippy::print_stderr,
    reason = "the harness prints progress and paths of logs to stderr; it has no printer"
)]

pub mod bundles;
pub mod certs;
pub mod chart;
pub mod cluster;
pub mod demo;
pub mod dist;
pub mod host;
pub mod image;
mod peers;
pub mod programs;
pub mod registry;
pub mod release;
pub mod sigstore;
pub mod soak;
pub mod ssh_server;
pub mod tools;
pub mod wait;
pub mod webhook;
pub mod workbench;

pub use cluster::Cluster;
pub use host::command::Output;
pub use host::island::IsolatedNetwork;
pub use registry::Registry;
pub use sigstore::Sigstore;
pub use tools::Tool;
pub use webhook::{Webhook, WebhookOptions};
pub use workbench::ToolEnvironment;

/// Installs aws-lc-rs as the default rustls crypto provider of this process. Later calls have no
/// effect.
pub(crate) fn use_own_tls_provider() {
    // An error means that a provider is set already.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}
