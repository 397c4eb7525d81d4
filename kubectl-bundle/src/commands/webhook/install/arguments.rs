//! Arguments of `install`.

use std::path::PathBuf;

use clap::Args;

use super::{ChartValues, Install};
use crate::cluster::apply::DryRun;
use crate::commands::webhook::reject_names;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DataFormat, DryRunMode, Environment, invalid_flag, registry};
use crate::system::files;

/// Install bundle-webhook and its API in a cluster, from the manifests in this program.
///
/// These are the manifests of the Helm chart with its default values. The command prints the
/// granted permissions. The command fails if the cluster has another installation, also an
/// installation by Helm. Existing CRDs are upgraded. Existing namespaces and ProvisionerClasses are
/// not changed.
///
/// No image of bundle-webhook is published yet, so --image is required. --values reads a file with
/// these values of the chart: image, replicas, resources, priorityClassName, nodeSelector,
/// tolerations, affinity, topologySpreadConstraints, podLabels, podAnnotations, proxy, log, cache
/// and settings. Use the chart for other values.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install, and wait until the pods are ready
  kubectl bundle install --image registry.example.com/bundle-webhook@sha256:DIGEST --wait

  # Print the objects without creating them
  kubectl bundle install --image registry.example.com/bundle-webhook@sha256:DIGEST --dry-run=client -o yaml

  # With other values
  kubectl bundle install --values values.yaml")]
pub(crate) struct Arguments {
    /// Name of a bundle. A name is an error: this verb installs only the webhook
    #[arg(value_name = "NAME", hide = true)]
    pub(crate) names: Vec<String>,
    /// Image of bundle-webhook, with its digest: REGISTRY/REPOSITORY@sha256:DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// File with values, or - for standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<PathBuf>,
    /// System namespace; the pod keeps its keys in the namespace NAME-state
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Wait until the pods are ready
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Timeout of --wait; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Output format of the objects of --dry-run
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<DataFormat>,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `install`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Install> {
        reject_names(&self.names, "install", "kubectl bundle deploy NAME REF")?;
        let dry_run = DryRun::from(self.dry_run);
        if self.output.is_some() && dry_run == DryRun::None {
            return Err(invalid_flag("--output", "only a dry run prints objects")
                .hint("add --dry-run=client or --dry-run=server")
                .into());
        }
        let values = match &self.values {
            None => ChartValues::default(),
            Some(path) => ChartValues::parse(&files::read(path)?, &path.display().to_string())?,
        };
        let image = self.image.or_else(|| values.image()).ok_or_else(|| {
            invalid_flag(
                "--image",
                "no image of bundle-webhook is published yet, so --image is required",
            )
            .hint("build the image, push the image, and name it by its digest: --image REGISTRY/REPOSITORY@sha256:DIGEST")
        })?;
        let is_pinned = registry::reference(&image)?.digest().is_some();
        Ok(Install {
            image,
            is_pinned,
            values,
            namespace: self.system_namespace,
            dry_run,
            wait: wait(self.wait, &self.timeout)?,
            format: self.output.map(Into::into),
            cluster: self.kube.settings(environment)?,
        })
    }
}
