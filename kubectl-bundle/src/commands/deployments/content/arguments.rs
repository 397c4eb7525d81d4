//! Arguments of `content`.

use clap::{Args, ValueEnum};

use super::{Content, ContentOutput};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, ContentServiceFlags, Environment};
use crate::ui::format::Format;

/// List or download the content of a Bundle, as bundle-webhook has unpacked it.
///
/// The content comes from the pods of bundle-webhook, through the API server. The command requires
/// a bearer token (see --as-service-account) and permission to download (ClusterRole
/// bundle-reader). It also requires permission to read the webhook registration and to forward
/// ports of the pods (see --content-url and --content-ca).
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # List the files of a Bundle
  kubectl bundle content web-4f2a9c

  # The Bundle that a BundleDeployment has installed
  kubectl bundle content $(kubectl get bundledeployment web -o jsonpath={.status.activeBundle})

  # Write the files into the folder content
  mkdir content && kubectl bundle content web-4f2a9c -o tar | tar -xz -C content

  # With a client certificate in the kubeconfig: act as a ServiceAccount
  kubectl bundle content web-4f2a9c --as-service-account default/reader")]
pub(crate) struct Arguments {
    /// Name of the Bundle
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Output format
    #[arg(
        short,
        long,
        value_name = "FORMAT",
        value_enum,
        help_heading = "Output options"
    )]
    pub(crate) output: Option<ContentFormat>,
    /// Flags for the content service.
    #[command(flatten)]
    pub(crate) service: ContentServiceFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

/// Formats of the content of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ContentFormat {
    /// JSON: the list of files
    Json,
    /// YAML: the list of files
    Yaml,
    /// The content itself: a gzipped tar
    Tar,
}

impl Arguments {
    /// Returns the settings of `content`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Content> {
        let (service, account) = self.service.settings()?;
        Ok(Content {
            name: self.name,
            output: match self.output {
                None => ContentOutput::Files(None),
                Some(ContentFormat::Json) => ContentOutput::Files(Some(Format::Json)),
                Some(ContentFormat::Yaml) => ContentOutput::Files(Some(Format::Yaml)),
                Some(ContentFormat::Tar) => ContentOutput::Archive,
            },
            service,
            account,
            cluster: self.kube.settings(environment)?,
        })
    }
}
