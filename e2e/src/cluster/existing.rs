//! Existing cluster: selected by a context of the user's kubeconfig, and checked for a response.
//! `guest` manages the objects that tests create in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;

use crate::command::Command;
use crate::kubeconfig;

/// Timeout for the first request. A healthy API server responds in milliseconds; a missing VPN
/// connection results in a timeout.
const ANSWER: Duration = Duration::from_secs(10);

pub(super) struct Existing {
    pub(super) admin: PathBuf,
    pub(super) server: String,
    pub(super) endpoint: Value,
}

/// Copies `context` from `kubeconfig`, or from the user's own files, to a file in `root`, and reads
/// the server's version.
pub(super) async fn find(
    root: &Path,
    kubectl: &Path,
    kubeconfig: Option<&Path>,
    context: &str,
) -> Result<Existing> {
    // As the user: which files count, and the paths in them, is kubectl's to say.
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
            "cannot take context `{context}` from {files}: {}\nhint: `kubectl config get-contexts` lists the contexts; KUBECONFIG names the files",
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
    // It holds the user's credentials: `data` goes even where logs are kept.
    let admin = kubeconfig::store(&root.join("data"), "admin", &found.stdout)?;
    ask(&admin).await.with_context(|| {
        format!(
            "the API server {server} of context `{context}` in {files} does not answer\nhint: is it up and reachable from here? `kubectl --context {context} version` asks it the same"
        )
    })?;
    Ok(Existing {
        admin,
        server,
        endpoint,
    })
}

async fn ask(admin: &Path) -> Result<()> {
    let config = Kubeconfig::read_from(admin).context("cannot read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
        .await
        .context("cannot use the kubeconfig")?;
    let client = Client::try_from(config).context("cannot make a client")?;
    tokio::time::timeout(ANSWER, client.apiserver_version())
        .await
        .map_err(|_| anyhow!("no answer within {} s", ANSWER.as_secs()))?
        .context("its version cannot be read")?;
    Ok(())
}

/// The files that kubectl reads, for messages.
fn users_files() -> String {
    match std::env::var("KUBECONFIG") {
        Ok(files) if !files.is_empty() => files,
        _ => "~/.kube/config".to_owned(),
    }
}
