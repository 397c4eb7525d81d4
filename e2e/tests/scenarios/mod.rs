//! The subjects. A scenario fails by panicking, so that its cluster's logs are kept.

mod admission;
mod airgap;
mod attest;
mod checks;
mod conformance;
mod cosign;
mod formats;
mod guest;
mod harness;
mod images;
mod keyless;
mod page;
mod plugins;
mod pod;
mod proof;
mod readme;
mod reconcile;
mod registries;
mod shipping;
mod signing;
mod sigstore;
mod story;
mod tenant;
mod tiles;
mod transfer;
mod workflow;
