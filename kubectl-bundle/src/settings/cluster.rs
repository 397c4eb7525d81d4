//! Choice of the cluster: flags, then `KUBECONFIG`, then the default file, then the ServiceAccount
//! of the pod.

use super::{Environment, duration};
use crate::args::Kube;
use crate::cluster::{KubeSettings, Kubeconfig};
use crate::failure::Outcome;

/// Returns the settings for the cluster flags.
pub(super) fn settings(kube: Kube, environment: &Environment) -> Outcome<KubeSettings> {
    let usual = || {
        environment
            .home
            .iter()
            .map(|home| home.join(".kube").join("config"))
            .collect::<Vec<_>>()
    };
    let kubeconfig = match kube.kubeconfig {
        Some(path) => Kubeconfig::File(path),
        None if !environment.kubeconfig.is_empty() => {
            Kubeconfig::Files(environment.kubeconfig.clone())
        }
        None => {
            let files = usual();
            if environment.in_cluster && !files.iter().any(|file| file.exists()) {
                Kubeconfig::InCluster
            } else {
                Kubeconfig::Files(files)
            }
        }
    };
    Ok(KubeSettings {
        kubeconfig,
        context: kube.context,
        namespace: kube.namespace,
        request_timeout: duration::limit("--request-timeout", &kube.request_timeout)?,
        act_as: kube.act_as,
        as_groups: kube.as_group,
    })
}
