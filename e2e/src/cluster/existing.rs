//! Existing cluster: selected by a context of the user's kubeconfig, and checked with one request.
//! `webhook::existing_cluster` manages the objects that tests create in it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use super::kubeconfig;
use crate::host::command::Command;

/// Timeout for the first request. A healthy API server responds in milliseconds; a missing VPN
/// connection results in a timeout.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// An existing cluster, and the objects that the tests create in the cluster.
pub(crate) struct ExistingCluster {
    context: String,
    pub(crate) kubectl: PathBuf,
    /// `true` while the objects of the webhook can exist in the cluster.
    pub(crate) has_webhook: AtomicBool,
    reserved: Mutex<Vec<String>>,
}

impl ExistingCluster {
    pub(super) fn new(context: &str, kubectl: &Path) -> Self {
        Self {
            context: context.to_owned(),
            kubectl: kubectl.to_owned(),
            has_webhook: AtomicBool::new(false),
            reserved: Mutex::new(Vec::new()),
        }
    }

    /// Records objects that [`Cluster::leave`](super::Cluster::leave) removes, as kubectl's
    /// `TYPE/NAME`.
    pub(crate) fn reserve(&self, names: &[&str]) {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.extend(names.iter().map(ToString::to_string));
    }

    /// Returns the objects that [`Cluster::leave`](super::Cluster::leave) removes.
    pub(crate) fn reserved(&self) -> Vec<String> {
        let reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        reserved.clone()
    }
}

impl fmt::Display for ExistingCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster of context `{}`", self.context)
    }
}

/// Connection to an existing cluster.
pub(super) struct ExistingContext {
    pub(super) admin: PathBuf,
    pub(super) server: String,
    pub(super) endpoint: Value,
}

/// Copies `context` from `kubeconfig`, or from the kubeconfig files that kubectl reads, to a file
/// in `root`, and reads the server's version.
pub(super) async fn find(
    root: &Path,
    kubectl: &Path,
    kubeconfig: Option<&Path>,
    context: &str,
) -> Result<ExistingContext> {
    // kubectl runs with the user's environment, because kubectl selects the kubeconfig files and
    // resolves the paths in these files.
    let mut command = Command::new(kubectl);
    for (name, value) in std::env::vars_os() {
        command = command.env(name, value);
    }
    let files = if let Some(file) = kubeconfig {
        command = command.kubeconfig(file);
        file.display().to_string()
    } else {
        users_files()
    };
    let found = command
        .args(["config", "view", "--minify", "--flatten", "--raw"])
        .args(["--output=json", "--context", context])
        .output()
        .await?;
    if !found.is_success() {
        return Err(anyhow!(
            "cannot read context `{context}` from {files}: {}\nhint: `kubectl config get-contexts` lists the contexts; KUBECONFIG names the files",
            found.stderr.trim().trim_start_matches("error: ")
        ));
    }
    let config: Value = serde_json::from_str(&found.stdout)
        .with_context(|| format!("kubectl printed no JSON for context `{context}` of {files}"))?;
    let endpoint = config["clusters"][0]["cluster"].clone();
    let server = endpoint["server"]
        .as_str()
        .with_context(|| format!("context `{context}` of {files} names no server"))?
        .to_owned();
    // The file contains credentials of the user. The folder `data` is removed even if the logs are
    // kept.
    let admin = kubeconfig::store(&root.join("data"), "admin", &found.stdout)?;
    check_response(&admin).await.with_context(|| {
        format!(
            "the API server {server} of context `{context}` in {files} does not respond\nhint: check that it runs and is reachable from this host: `kubectl --context {context} version`"
        )
    })?;
    Ok(ExistingContext {
        admin,
        server,
        endpoint,
    })
}

async fn check_response(admin: &Path) -> Result<()> {
    let config = Kubeconfig::read_from(admin).context("cannot read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .context("cannot use the kubeconfig")?;
    let client = Client::try_from(config).context("cannot make a client")?;
    tokio::time::timeout(REQUEST_TIMEOUT, client.apiserver_version())
        .await
        .map_err(|_| anyhow!("no response within {} s", REQUEST_TIMEOUT.as_secs()))?
        .context("its version cannot be read")?;
    Ok(())
}

/// Returns the kubeconfig files that kubectl reads, for messages.
fn users_files() -> String {
    match std::env::var("KUBECONFIG") {
        Ok(files) if !files.is_empty() => files,
        _ => "~/.kube/config".to_owned(),
    }
}
