//! `cargo xtask fixtures`: makes anew what unit tests of signatures read, with real cosign at a sigstore of our own.
//! What is made is in `e2e::fixtures`; what each file is for is said beside the files.

use std::path::Path;

use anyhow::Result;
use clap::Args;

/// None: everything is made anew.
#[derive(Debug, Args)]
pub(crate) struct Arguments {}

/// Replaces the files; they differ each time, since keys, certificates and times do.
pub(crate) async fn run(_: Arguments) -> Result<()> {
    let target =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/bundle-trust/testdata/keyless");
    e2e::fixtures::write(&target).await
}
