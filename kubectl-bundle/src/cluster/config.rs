//! Choice of cluster, user and namespace from kubeconfig files.

use std::path::PathBuf;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use http::HeaderValue;
use kube::config::{AuthInfo, Config, KubeConfigOptions, Kubeconfig as File};

use crate::failure::{Failure, Outcome};

/// Location of the kubeconfig.
#[derive(Debug, Clone)]
pub(crate) enum Kubeconfig {
    /// File from a flag. The file must exist.
    File(PathBuf),
    /// Files of `$KUBECONFIG`, merged, or the default file. Missing files are ignored.
    Files(Vec<PathBuf>),
    /// No kubeconfig: this program runs in a pod, and uses the ServiceAccount of the pod.
    InCluster,
}

/// Cluster and user of a command.
#[derive(Debug, Clone)]
pub(crate) struct KubeSettings {
    /// Location of the kubeconfig.
    pub(crate) kubeconfig: Kubeconfig,
    /// Context; `None` means the current context of the file.
    pub(crate) context: Option<String>,
    /// Namespace; `None` means the namespace of the context.
    pub(crate) namespace: Option<String>,
    /// Timeout of one request; `None` means no limit.
    pub(crate) request_timeout: Option<Duration>,
    /// User to impersonate.
    pub(crate) act_as: Option<String>,
    /// Groups to impersonate.
    pub(crate) as_groups: Vec<String>,
    /// Header `Authorization` with a bearer token. This token replaces the credentials of the
    /// kubeconfig.
    pub(crate) authorization: Option<HeaderValue>,
}

/// Configuration of the kube client for the selected cluster, and a description for messages.
pub(super) struct SelectedCluster {
    /// Configuration of the kube client.
    pub(super) config: Config,
    /// Description: `context "dev" of /home/ana/.kube/config`.
    pub(super) origin: String,
}

fn unusable(message: String) -> Finding {
    Finding::error(codes::cluster::BAD_KUBECONFIG, message)
}

fn listed(paths: &[PathBuf]) -> String {
    paths
        .iter()
        .map(|path| path.display().to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

fn read(paths: &[PathBuf]) -> Outcome<(File, Vec<PathBuf>)> {
    let mut merged: Option<File> = None;
    let mut used = Vec::new();
    for path in paths {
        let file = File::read_from(path).map_err(|error| {
            Failure::caused(
                unusable("cannot read the kubeconfig".to_owned())
                    .in_file(path.display().to_string())
                    .hint("check the path, or use another file with --kubeconfig"),
                &error,
            )
        })?;
        used.push(path.clone());
        merged = Some(match merged {
            None => file,
            Some(earlier) => earlier.merge(file).map_err(|error| {
                Failure::caused(
                    unusable(format!("cannot merge the kubeconfigs {}", listed(&used)))
                        .hint("use a single file with --kubeconfig"),
                    &error,
                )
            })?,
        });
    }
    match merged {
        Some(file) => Ok((file, used)),
        None => Err(unusable("no kubeconfig found".to_owned())
            .hint("set --kubeconfig or KUBECONFIG")
            .into()),
    }
}

/// Returns the cluster that `settings` select.
pub(super) async fn select_cluster(settings: &KubeSettings) -> Outcome<SelectedCluster> {
    let mut chosen = match &settings.kubeconfig {
        Kubeconfig::InCluster => SelectedCluster {
            config: Config::incluster().map_err(|error| {
                Failure::caused(
                    unusable("cannot use the ServiceAccount of this pod".to_owned())
                        .hint("use a kubeconfig with --kubeconfig"),
                    &error,
                )
            })?,
            origin: "the ServiceAccount of this pod".to_owned(),
        },
        Kubeconfig::File(path) => from_files(std::slice::from_ref(path), settings).await?,
        Kubeconfig::Files(paths) => {
            let present: Vec<_> = paths.iter().filter(|path| path.exists()).cloned().collect();
            if present.is_empty() {
                return Err(unusable(format!(
                    "no kubeconfig found: {} does not exist",
                    listed(paths)
                ))
                .hint("set --kubeconfig or KUBECONFIG")
                .into());
            }
            from_files(&present, settings).await?
        }
    };
    if let Some(namespace) = &settings.namespace {
        chosen.config.default_namespace.clone_from(namespace);
    }
    let header = settings.authorization.as_ref();
    let token = header.and_then(|header| header.to_str().ok()?.strip_prefix("Bearer "));
    if let Some(token) = token {
        chosen.config.auth_info = AuthInfo {
            token: Some(token.to_owned().into()),
            ..AuthInfo::default()
        };
    }
    if settings.act_as.is_some() {
        chosen
            .config
            .auth_info
            .impersonate
            .clone_from(&settings.act_as);
        chosen.config.auth_info.impersonate_groups =
            (!settings.as_groups.is_empty()).then(|| settings.as_groups.clone());
    }
    chosen.config.connect_timeout = settings.request_timeout;
    // kube would retry a response with status 503 up to fifteen times, and discard the message of
    // bundle-webhook. Without retries, users see the message and can retry the command.
    chosen.config.default_retry = false;
    Ok(chosen)
}

async fn from_files(paths: &[PathBuf], settings: &KubeSettings) -> Outcome<SelectedCluster> {
    let (file, used) = read(paths)?;
    let context = settings
        .context
        .clone()
        .or_else(|| file.current_context.clone())
        .filter(|name| !name.is_empty());
    let known: Vec<_> = file.contexts.iter().map(|one| one.name.clone()).collect();
    let location = listed(&used);
    let Some(context) = context else {
        return Err(unusable("no context is selected".to_owned())
            .in_file(location)
            .hint(if known.is_empty() {
                "the file has no contexts".to_owned()
            } else {
                format!(
                    "select one with --context or `kubectl config use-context`; available: {}",
                    known.join(", ")
                )
            })
            .into());
    };
    if !known.contains(&context) {
        return Err(unusable(format!("context `{context}` does not exist"))
            .in_file(location)
            .hint(if known.is_empty() {
                "the file has no contexts".to_owned()
            } else {
                format!("available: {}", known.join(", "))
            })
            .into());
    }
    let options = KubeConfigOptions {
        context: Some(context.clone()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(file, &options)
        .await
        .map_err(|error| {
            Failure::caused(
                unusable(format!("context `{context}` is invalid")).in_file(&location),
                &error,
            )
        })?;
    Ok(SelectedCluster {
        config,
        origin: format!("context `{context}` of {location}"),
    })
}
