//! Go programs of `e2e/peers` that benchmarks are compared with. Go builds these programs from the
//! modules in this folder. `webhook::peer` starts the no-op webhook.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::Cluster;

/// Folder of the program that applies manifests with the library of Flux.
const FLUX_APPLY: &str = "flux-apply";

impl Cluster {
    /// Builds `flux-apply`, which applies folders of manifests with `github.com/fluxcd/pkg/ssa`.
    /// Returns its path.
    pub fn flux_apply(&self) -> Result<PathBuf> {
        self.go_peer(FLUX_APPLY)
    }

    /// Builds the Go module `e2e/peers/NAME`. Returns the path of the program.
    pub(crate) fn go_peer(&self, name: &str) -> Result<PathBuf> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("peers")
            .join(name);
        let program = self.folder().join("bin").join(name);
        let built = Command::new("go")
            .args(["build", "-trimpath", "-o"])
            .arg(&program)
            .arg(".")
            .current_dir(&source)
            .output()
            .with_context(|| format!("cannot start go, which builds {name} for a benchmark"))?;
        if !built.status.success() {
            bail!(
                "go cannot build {name}: {}",
                String::from_utf8_lossy(&built.stderr).trim()
            );
        }
        Ok(program)
    }
}
