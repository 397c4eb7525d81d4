//! Signatures and attestations that the plugin creates, in comparison with real cosign.

mod attest;
mod blobs;
mod conformance;
mod cosign;
pub(super) mod images;
mod login;
mod plugins;
mod publish;
mod rekor2;
mod sigstore;
