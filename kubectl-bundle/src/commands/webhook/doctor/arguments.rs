//! Arguments of `doctor`.

use clap::Args;

use super::{Doctor, RegistryProbe};
use crate::failure::Outcome;
use crate::flags::{
    ClusterFlags, DataFormat, Environment, RegistryFlags, duration, invalid_flag, registry,
};

/// Check the plugin, the connection, the cluster and bundle-webhook, and print what to do about
/// each problem.
///
/// The command checks the program that kubectl runs, the connection, the Kubernetes version, the
/// clock, your permissions and the CustomResourceDefinitions. It sends a dry run of an object that
/// bundle-webhook rejects. It checks the registrations and their certificate authority, pods and
/// endpoints, and the permissions of the pod. It checks signature policies and their trust roots,
/// and the versions of plugin and pod.
///
/// The command changes nothing. You can run the command without permissions: a check without the
/// required permission is `unknown`. Exit code 0 means that there is no problem; there may be
/// warnings.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle doctor

  # Also read from a registry with your credentials
  kubectl bundle doctor --reference registry.example.com/team/web

  # Only problems
  kubectl bundle doctor -o json | jq '.checks[] | select(.state == \"problem\")'

  # As a tenant
  kubectl bundle doctor --as ana")]
pub(crate) struct Arguments {
    /// Also read this reference or repository: REGISTRY/REPOSITORY, optionally with :TAG or @DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) reference: Option<String>,
    /// Namespace of the webhook [default: the namespace in the registrations, else bundle-system]
    #[arg(long, value_name = "NAME")]
    pub(crate) system_namespace: Option<String>,
    /// Deadline of each check
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    pub(crate) timeout: String,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<DataFormat>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `doctor`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Doctor> {
        let deadline = duration::limit("--timeout", &self.timeout)?.ok_or_else(|| {
            invalid_flag("--timeout", "each check needs a deadline")
                .hint("use a duration such as 10s or 1m")
        })?;
        let mut settings = self.registry.settings(environment)?;
        let reference = match &self.reference {
            None => None,
            Some(text) => {
                // A tag is added, so that a repository is a valid reference.
                let (reference, is_repository) = match registry::reference(text) {
                    Ok(reference) => (reference, false),
                    Err(failure) => match registry::reference(&format!("{text}:latest")) {
                        Ok(reference) => (reference, true),
                        Err(_) => return Err(failure),
                    },
                };
                settings = settings.of(&reference);
                Some(if is_repository {
                    RegistryProbe::Repository((&reference).into())
                } else {
                    RegistryProbe::Reference(reference)
                })
            }
        };
        Ok(Doctor {
            cluster: self.kube.settings(environment)?,
            reference,
            registry: settings,
            namespace: self.system_namespace,
            deadline,
            path: environment.path.clone(),
            program: environment.program.clone(),
            format: self.output.map(Into::into),
        })
    }
}
