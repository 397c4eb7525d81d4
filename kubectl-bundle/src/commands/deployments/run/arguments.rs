//! Arguments of `run`.

use std::path::PathBuf;

use clap::Args;

use super::Run;
use crate::commands::deployments::arguments::{ClassFlags, WriteFlags};
use crate::commands::deployments::deployment_flags::DeploymentFlags;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, ContentServiceFlags, Environment, ImageFlags};

/// Install a local folder without a registry: create or update a BundleDeployment, and upload the
/// content of the folder to bundle-webhook.
///
/// The folder is checked and packed as by `build`. A folder that has only manifests needs no
/// bundle.yaml. The same command with changed files upgrades. With unchanged files, the command
/// reports that the Bundle is up-to-date. Uploaded content cannot be signed. Use it only for
/// development. Otherwise push the content to a registry and use `deploy`.
///
/// The content is uploaded to the pods of bundle-webhook, through the API server. The command
/// requires a bearer token (see --as-service-account) and permission to upload (ClusterRole
/// bundle-uploader). It also requires permission to read the webhook registration and to forward
/// ports of the pods (see --content-url and --content-ca).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install ./web, and wait until it is installed
  kubectl bundle run web ./web --wait

  # After a change of the files: upgrade
  kubectl bundle run web ./web --wait=healthy

  # With a client certificate in the kubeconfig: act as a ServiceAccount
  kubectl bundle run web ./web --as-service-account default/deployer

  # To an address of the content service outside of the cluster
  kubectl bundle run web ./web --content-url https://bundles.example.com --content-ca ca.crt

  # Check the folder, and validate the object on the API server
  kubectl bundle run web ./web --dry-run=server")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Folder, or packed chart
    #[arg(value_name = "DIR|CHART")]
    pub(crate) folder: PathBuf,
    /// Flag for container images.
    #[command(flatten)]
    pub(crate) images: ImageFlags,
    /// Flag for the class.
    #[command(flatten)]
    pub(crate) class: ClassFlags,
    /// Flags of the BundleDeployment.
    #[command(flatten)]
    pub(crate) deployment: DeploymentFlags,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
    /// Flags for the content service.
    #[command(flatten)]
    pub(crate) service: ContentServiceFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `run`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Run> {
        let (service, account) = self.service.settings()?;
        Ok(Run {
            folder: self.folder,
            allowed: self.images.settings()?,
            class: self.class.class,
            // Even without --wait, the command waits for the Bundle before the upload.
            upload_wait: wait(true, &self.write.timeout)?,
            deployment: self
                .deployment
                .settings(self.name, &self.write, self.kube, environment)?,
            service,
            account,
        })
    }
}
