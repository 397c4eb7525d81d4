//! `cargo xtask fixtures`: generates the fixtures of unit tests for signatures with real cosign and
//! a local Sigstore instance. `e2e::bundles::fixtures` generates the files. A README next to the
//! files describes each file.

use std::path::Path;

use anyhow::Result;
use clap::Args;

/// No arguments: all fixtures are generated.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Replaces the files. Each run writes different files, because the files contain keys,
/// certificates and times.
pub(crate) async fn run(_: Arguments) -> Result<()> {
    let target =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/bundle-trust/testdata/keyless");
    e2e::bundles::fixtures::write(&target).await
}
