//! Harness for end-to-end tests: tools built from their Go modules, clusters, registries, and our
//! two programs. The scenarios are in `tests/scenarios`.
#![allow(
    clippy::print_stderr,
    reason = "the harness talks to the person who runs it, on stderr; it has no printer"
)]

pub mod bundles;
pub mod certs;
pub mod cluster;
pub mod command;
pub mod fixtures;
pub mod image;
pub mod island;
pub mod manifests;
pub mod memory_limit;
pub mod packages;
pub mod peer;
pub mod prerequisites;
pub mod programs;
pub mod proxy;
pub mod registry;
pub mod release;
pub mod sigstore;
pub mod soak;
pub mod story;
pub mod token_server;
pub mod tools;
pub mod wait;
pub mod webhook;
pub mod workbench;

mod janitor;
mod kubeconfig;
mod ports;
mod process;

pub use cluster::Cluster;
pub use command::Output;
pub use island::Island;
pub use registry::Registry;
pub use sigstore::Sigstore;
pub use tools::Tool;
pub use webhook::{Webhook, WebhookOptions};
pub use workbench::Workbench;

/// Every TLS connection of this process uses the one provider of the workspace; safe to call often.
pub(crate) fn use_own_tls_provider() {
    // An error says that a provider is set already, which is what we want.
    drop(rustls::crypto::aws_lc_rs::default_provider().install_default());
}
