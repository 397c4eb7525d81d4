//! External programs for tests and demo (API server, etcd, registry, cosign, and others), which are
//! built once into the cache folder of the user. `cache` has the path of that folder, `build` runs
//! `go`.

mod build;
mod cache;
mod catalogue;
mod node;
pub mod published;
mod release;
mod version;

use std::path::PathBuf;

use anyhow::{Context, Result};

pub use catalogue::Tool;
pub(crate) use node::sigstore;
pub use release::{KubernetesRelease, RELEASE_VARIABLE};
pub use version::ServerVersion;

/// Returns the path of `tool`. Builds `tool` if it is not in the cache.
///
/// `version` is the Kubernetes version that the program reports; only the tools of Kubernetes use
/// it. `None` means the version of the sources.
///
/// If `KUBEBUILDER_ASSETS` is set to a folder with the tool and `version` is `None`, the tool in
/// that folder is used.
pub fn path(tool: Tool, version: Option<&ServerVersion>) -> Result<PathBuf> {
    if version.is_none()
        && let Some(ready) = from_assets(tool)
    {
        return Ok(ready);
    }
    let recipe = build::Recipe::new(tool, version)?;
    cache::built(&recipe).with_context(|| format!("cannot provide `{}`", tool.name()))
}

/// Like [`path`], but runs on a blocking thread, because a first build takes minutes.
pub async fn path_async(tool: Tool, version: Option<ServerVersion>) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || path(tool, version.as_ref()))
        .await
        .context("the thread that builds tools ended early")?
}

/// Returns a folder for `PATH` with exactly `tools` under their usual names.
pub fn folder(tools: &[Tool]) -> Result<PathBuf> {
    let mut paths = Vec::new();
    for tool in tools {
        paths.push((tool.name(), path(*tool, None)?));
    }
    cache::folder_of(&paths)
}

/// Variable of controller-runtime's envtest for a folder with kube-apiserver, etcd and
/// kubectl.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

fn from_assets(tool: Tool) -> Option<PathBuf> {
    if !tool.in_assets() {
        return None;
    }
    let path = PathBuf::from(std::env::var_os(ASSETS)?).join(tool.name());
    path.is_file().then_some(path)
}
