//! Flags for the cluster. The cluster comes from the first of these sources: flags, `KUBECONFIG`,
//! the default file, or in a pod, the ServiceAccount of the pod.

use std::path::PathBuf;

use bundle_core::names::{KubeName, NameKind};
use clap::{Args, ValueEnum};

use super::{Environment, duration, invalid_flag};
use crate::cluster::apply::DryRun;
use crate::cluster::wait::Wait;
use crate::cluster::{KubeSettings, Kubeconfig};
use crate::failure::Outcome;

/// Cluster flags, as in kubectl.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Cluster options")]
pub(crate) struct ClusterFlags {
    /// Path of the kubeconfig file [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace for verbs that need a namespace [default: the namespace of the context]
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// Timeout of each request, such as 5s or 1m; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub(crate) request_timeout: String,
    /// User to impersonate
    #[arg(long = "as", value_name = "USER")]
    pub(crate) act_as: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long, value_name = "GROUP", requires = "act_as")]
    pub(crate) as_group: Vec<String>,
}

impl ClusterFlags {
    /// Returns the settings for the cluster flags.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<KubeSettings> {
        let default_files = || {
            environment
                .home
                .iter()
                .map(|home| home.join(".kube").join("config"))
                .collect::<Vec<_>>()
        };
        let kubeconfig = match self.kubeconfig {
            Some(path) => Kubeconfig::File(path),
            None if !environment.kubeconfig.is_empty() => {
                Kubeconfig::Files(environment.kubeconfig.clone())
            }
            None => {
                let files = default_files();
                if environment.in_cluster && !files.iter().any(|file| file.exists()) {
                    Kubeconfig::InCluster
                } else {
                    Kubeconfig::Files(files)
                }
            }
        };
        Ok(KubeSettings {
            kubeconfig,
            context: self.context,
            namespace: self.namespace,
            request_timeout: duration::limit("--request-timeout", &self.request_timeout)?,
            act_as: self.act_as,
            as_groups: self.as_group,
            authorization: None,
        })
    }
}

/// Flag for the namespace of the inventories.
#[derive(Debug, Default, Args)]
pub(crate) struct StateNamespaceFlags {
    /// Namespace of the inventories [default: the namespace of bundle-webhook, followed by -state]
    #[arg(long, value_name = "NAME")]
    pub(crate) state_namespace: Option<String>,
}

impl StateNamespaceFlags {
    /// Returns the namespace, if the flag is set.
    pub(crate) fn settings(self) -> Outcome<Option<KubeName>> {
        let namespace = self.state_namespace.as_deref().map(|text| {
            KubeName::parse(NameKind::Label, text)
                .map_err(|why| invalid_flag("--state-namespace", &why.to_string()))
        });
        Ok(namespace.transpose()?)
    }
}

/// Mode of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRunMode {
    /// Change the cluster
    None,
    /// Send nothing, and print what would be sent
    Client,
    /// Validate the objects on the API server, and store nothing
    Server,
}

impl From<DryRunMode> for DryRun {
    fn from(mode: DryRunMode) -> Self {
        match mode {
            DryRunMode::None => Self::None,
            DryRunMode::Client => Self::Client,
            DryRunMode::Server => Self::Server,
        }
    }
}

/// Returns the wait mode for `--wait` and `--timeout`.
pub(crate) fn wait(waits: bool, timeout: &str) -> Outcome<Wait> {
    let limit = duration::limit("--timeout", timeout)?;
    Ok(match limit {
        _ if !waits => Wait::No,
        None => Wait::Forever,
        Some(limit) => Wait::AtMost(limit),
    })
}
