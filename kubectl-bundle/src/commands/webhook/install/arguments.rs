//! The arguments of `install`.

use std::path::PathBuf;

use clap::Args;

use super::{Install, Values};
use crate::cluster::apply::DryRun;
use crate::commands::webhook::reject_names;
use crate::failure::Outcome;
use crate::flags::cluster::wait;
use crate::flags::{ClusterFlags, DataFormat, DryRunMode, Environment, registry, unusable};
use crate::system::files;

/// Install bundle-webhook and its API in a cluster, from manifests that this program carries.
///
/// Those are the manifests of the Helm chart with its default values. The command prints the rights that it grants. It refuses a second
/// installation, also beside one by Helm. CRDs that exist are upgraded; namespaces and ProvisionerClasses that exist stay as they are.
///
/// No image of bundle-webhook is published yet, so --image is required. --values takes a file with these keys of the chart's values: image,
/// replicas, resources, priorityClassName, nodeSelector, tolerations, affinity, topologySpreadConstraints, podLabels, podAnnotations, proxy,
/// log, cache and settings. For the others use the chart.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install, and wait until the pods are ready
  kubectl bundle install --image registry.example.com/bundle-webhook@sha256:DIGEST --wait

  # What would be created, and with which rights
  kubectl bundle install --image registry.example.com/bundle-webhook@sha256:DIGEST --dry-run=client -o yaml

  # With values of your own
  kubectl bundle install --values values.yaml")]
pub(crate) struct Arguments {
    /// The name of a bundle, which is for another verb
    #[arg(value_name = "NAME", hide = true)]
    pub(crate) names: Vec<String>,
    /// Image of bundle-webhook, by digest: REGISTRY/REPOSITORY@sha256:DIGEST
    #[arg(long, value_name = "REF")]
    pub(crate) image: Option<String>,
    /// File with values; `-` is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) values: Option<PathBuf>,
    /// The system namespace; the pod keeps its keys in the one with `-state` at the end
    #[arg(long, value_name = "NAME", default_value = "bundle-system")]
    pub(crate) system_namespace: String,
    /// Wait until the pods are ready
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// How long to wait; 0 is without limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Do not change the cluster: `server` asks it what it would do
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRunMode::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRunMode,
    /// Print the objects of --dry-run
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<DataFormat>,
    /// Flags that select the cluster.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// The settings of `install`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Install> {
        reject_names(&self.names, "install", "kubectl bundle deploy NAME REF")?;
        let dry_run = DryRun::from(self.dry_run);
        if self.output.is_some() && dry_run == DryRun::None {
            return Err(unusable("--output", "only a dry run prints objects")
                .hint("add --dry-run=client or --dry-run=server")
                .into());
        }
        let values = match &self.values {
            None => Values::default(),
            Some(path) => Values::parse(&files::read(path)?, &path.display().to_string())?,
        };
        let image = self.image.or_else(|| values.image()).ok_or_else(|| {
            unusable(
                "--image",
                "no image of bundle-webhook is published yet, so --image is required",
            )
            .hint("build one, push it, and name it by its digest: --image REGISTRY/REPOSITORY@sha256:DIGEST")
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
