//! Arguments of `deploy`.

use bundle_api::ServiceAccountName;
use bundle_api::deployment::{Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace};
use clap::{Args, ValueEnum};

use super::{Deploy, DeploymentSettings};
use crate::commands::deployments::arguments::{ContentFlags, WaitFlag, WriteFlags};
use crate::commands::deployments::bundle_spec::Setting;
use crate::commands::deployments::preview::{ExternalDiff, PreviewOutput};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, DryRunMode, Environment, RegistryFlags, invalid_flag};

/// Install a bundle: create or update a BundleDeployment with the Bundle in its template.
///
/// The same command with another reference upgrades. A tag is pinned to its current digest.
/// Settings without flags keep their values, and each changed field is printed. With --wait, the
/// command stops at permanent failures and prints the cause.
///
/// Objects without a namespace are installed into the namespace of -n (spec.targetNamespace).
/// Without -n, content with such objects is rejected; the namespace of the context is not used. A
/// ServiceAccount without a namespace is in the namespace of -n too; write NAMESPACE/NAME for
/// another one. An operator bundle (registry+v1) is installed into the namespace of -n, else into
/// the one that it suggests, which it then creates.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install, and wait until it is installed
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --wait

  # Upgrade, and wait until every object is healthy; all settings are kept
  kubectl bundle deploy web registry.example.com/team/web:1.5.0 --wait=healthy

  # Install objects without a namespace into team-a
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a

  # The same, with team-a created if it is missing
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a --create-namespace

  # Install as another ServiceAccount
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --service-account team-a/deployer

  # Print the object for a GitOps repository
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=client -o yaml

  # Validate on the API server
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=server

  # The same, with the changes of each object
  kubectl bundle deploy web registry.example.com/team/web:1.5.0 --dry-run=server --show=diff")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: ContentFlags,
    /// Install as this ServiceAccount instead of that of the class: NAMESPACE/NAME, or a name in
    /// the namespace of -n; an empty value restores that of the class
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) service_account: Option<String>,
    /// Create the namespace of -n if it is missing; it is deleted with the content only if it is
    /// empty
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) create_namespace: Option<bool>,
    /// Treatment of an existing object without an owner
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) collision: Option<CollisionFlag>,
    /// Treatment of drift of installed objects
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) drift: Option<DriftFlag>,
    /// Pause: apply neither new content nor corrections of drift
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) paused: Option<bool>,
    /// Treatment of the installed objects when the BundleDeployment is deleted
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) deletion: Option<DeletionFlag>,
    /// Treatment of a CustomResourceDefinition with custom resources at that time
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) custom_resources: Option<CustomResourcesFlag>,
    /// Objects to delete and create again if an immutable field changes; overridden by the
    /// annotation core.rukpak.io/replace of an object
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) replace: Option<ReplaceFlag>,
    /// Wait until it is installed or, with --wait=healthy, until its objects are healthy too
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, value_enum, default_value_t = WaitFlag::False, default_missing_value = "true")]
    pub(crate) wait: WaitFlag,
    /// With --dry-run=server, also print the changes of the installed objects, as
    /// `kubectl bundle diff` does
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "output")]
    pub(crate) show: Option<ShowFlag>,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: RegistryFlags,
}

impl Arguments {
    /// Returns the settings of `deploy`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Deploy> {
        let service_account = match self.service_account.as_deref() {
            None => Setting::Keep,
            Some("") => Setting::Unset,
            Some(text) => Setting::Set(service_account(text, self.kube.namespace.as_deref())?),
        };
        let (waits, goal) = self.wait.goal();
        if self.show.is_some() && self.write.dry_run != DryRunMode::Server {
            return Err(
                invalid_flag("--show", "a preview needs a dry run by the API server")
                    .hint("add --dry-run=server")
                    .into(),
            );
        }
        let show = self.show.map(|ShowFlag::Diff| PreviewOutput {
            format: None,
            external: ExternalDiff::of(environment.external_diff.as_deref()),
        });
        Ok(Deploy {
            name: self.name,
            content: self
                .content
                .settings(&self.reference, self.registry, environment)?,
            settings: DeploymentSettings {
                service_account,
                target_namespace: self.kube.namespace.clone(),
                create_namespace: self.create_namespace,
                collision: self.collision.map(|mode| match mode {
                    CollisionFlag::Prevent => Collision::Prevent,
                    CollisionFlag::Adopt => Collision::Adopt,
                }),
                drift: self.drift.map(|mode| match mode {
                    DriftFlag::Correct => DriftMode::Correct,
                    DriftFlag::Report => DriftMode::Report,
                }),
                paused: self.paused,
                deletion: self.deletion.map(|mode| match mode {
                    DeletionFlag::Delete => DeleteObjects::Delete,
                    DeletionFlag::Orphan => DeleteObjects::Orphan,
                }),
                custom_resources: self.custom_resources.map(|mode| match mode {
                    CustomResourcesFlag::Refuse => DeleteCustomResources::Refuse,
                    CustomResourcesFlag::Orphan => DeleteCustomResources::Orphan,
                    CustomResourcesFlag::Delete => DeleteCustomResources::Delete,
                }),
                replace: self.replace.map(|mode| match mode {
                    ReplaceFlag::Always => Replace::Always,
                    ReplaceFlag::IfCompleted => Replace::IfCompleted,
                    ReplaceFlag::Never => Replace::Never,
                }),
            },
            goal,
            show,
            write: self.write.settings(waits, self.kube, environment)?,
        })
    }
}

/// Preview of a dry run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShowFlag {
    /// Differences of each object
    Diff,
}

/// Treatment of an existing object without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum CollisionFlag {
    /// Keep it, and fail
    Prevent,
    /// Adopt it
    Adopt,
}

/// Treatment of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum DriftFlag {
    /// Restore them
    Correct,
    /// Only report them
    Report,
}

/// Treatment of the installed objects on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum DeletionFlag {
    /// Delete them
    Delete,
    /// Keep them
    Orphan,
}

/// Treatment of a CustomResourceDefinition with custom resources on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum CustomResourcesFlag {
    /// Delete nothing, and wait until no custom resources are left
    Refuse,
    /// Keep the definition and its custom resources
    Orphan,
    /// Delete all of them
    Delete,
}

/// Treatment of objects with immutable fields that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum ReplaceFlag {
    /// All but Namespaces, CustomResourceDefinitions and volumes
    Always,
    /// Jobs that have completed or failed
    IfCompleted,
    /// None
    Never,
}

/// Parses `NAMESPACE/NAME`, or a name in the namespace of `-n`.
fn service_account(text: &str, namespace: Option<&str>) -> Outcome<ServiceAccountName> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None => (namespace.unwrap_or_default(), text),
    };
    if namespace.is_empty() || name.is_empty() || name.contains('/') {
        return Err(invalid_flag(
            "--service-account",
            &format!("`{text}` is not a valid ServiceAccount"),
        )
        .hint("write NAMESPACE/NAME, such as team-a/deployer, or set the namespace with -n")
        .into());
    }
    Ok(ServiceAccountName {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}
