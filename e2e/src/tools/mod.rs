//! The programs of others that tests and the demo run (API server, etcd, registry, cosign, …), built once into the user's cache folder.
//! Which folder that is and who may write it is in `cache`, how `go` is called in `build`; what is done with the tools is not here.

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

/// The path of `tool`, built first where the cache does not have it yet.
///
/// `version` is what the program says of itself when asked for its Kubernetes version. Only the tools of Kubernetes heed it;
/// `None` means the version of the sources they are built from. Where `KUBEBUILDER_ASSETS` names a folder that has the tool and no version is
/// asked for, that one is taken as it is.
pub fn path(tool: Tool, version: Option<&ServerVersion>) -> Result<PathBuf> {
    if version.is_none()
        && let Some(ready) = from_assets(tool)
    {
        return Ok(ready);
    }
    let recipe = build::Recipe::new(tool, version)?;
    cache::built(&recipe).with_context(|| format!("cannot provide `{}`", tool.name()))
}

/// As [`path`], away from the async runtime's threads: a first build takes minutes.
pub async fn path_async(tool: Tool, version: Option<ServerVersion>) -> Result<PathBuf> {
    tokio::task::spawn_blocking(move || path(tool, version.as_ref()))
        .await
        .context("the thread that builds tools ended early")?
}

/// A folder for `PATH` that holds exactly `tools` under their usual names.
pub fn folder(tools: &[Tool]) -> Result<PathBuf> {
    let mut paths = Vec::new();
    for tool in tools {
        paths.push((tool.name(), path(*tool, None)?));
    }
    cache::folder_of(&paths)
}

/// Variable by which controller-runtime's envtest names a folder with kube-apiserver, etcd and kubectl.
const ASSETS: &str = "KUBEBUILDER_ASSETS";

fn from_assets(tool: Tool) -> Option<PathBuf> {
    if !tool.in_assets() {
        return None;
    }
    let path = PathBuf::from(std::env::var_os(ASSETS)?).join(tool.name());
    path.is_file().then_some(path)
}
