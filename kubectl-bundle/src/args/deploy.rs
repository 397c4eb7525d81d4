//! Arguments of `deploy` and `create`.

use clap::{Args, ValueEnum};

use super::{DryRun, Kube, Object, Registry};

/// Flags that both verbs have.
#[derive(Debug, Args)]
pub(crate) struct Content {
    /// ProvisionerClass [default: that of the existing object, else the one for the format of the
    /// package]
    #[arg(long, value_name = "NAME")]
    pub(crate) class: Option<String>,
    /// Name of a Secret in the system namespace with credentials for the registry; an empty name
    /// removes the setting
    #[arg(long, value_name = "NAME")]
    pub(crate) pull_secret: Option<String>,
    /// Keep a tag instead of pinning it to its current digest
    #[arg(long)]
    pub(crate) keep_tag: bool,
    /// Add manifest and signatures to the object, so that admission needs no registry
    #[arg(long, conflicts_with = "keep_tag")]
    pub(crate) with_proof: bool,
}

/// Flags of writes.
#[derive(Debug, Args)]
pub(crate) struct Write {
    /// Do not change the cluster; with `server`, the API server validates the request
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRun::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
    /// Take over fields of other field managers
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// Timeout of --wait; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Output format of the object, instead of its result
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Object>,
}

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
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=server")]
pub(crate) struct Deploy {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: Content,
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
    pub(crate) collision: Option<Collision>,
    /// Treatment of drift of installed objects
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) drift: Option<Drift>,
    /// Pause: apply neither new content nor corrections of drift
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) paused: Option<bool>,
    /// Treatment of the installed objects when the BundleDeployment is deleted
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) deletion: Option<Deletion>,
    /// Treatment of a CustomResourceDefinition with custom resources at that time
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) custom_resources: Option<CustomResources>,
    /// Objects to delete and create again if an immutable field changes; overridden by the
    /// annotation core.rukpak.io/replace of an object
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) replace: Option<Replace>,
    /// Wait until it is installed or, with --wait=healthy, until its objects are healthy too
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, value_enum, default_value_t = WaitFor::False, default_missing_value = "true")]
    pub(crate) wait: WaitFor,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: Write,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Create a Bundle: content that is pulled, verified and stored, but not installed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle create web-1-4-0 registry.example.com/team/web:1.4.0 --wait")]
pub(crate) struct Create {
    /// Name of the Bundle, at most 52 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: Content,
    /// Wait until it is unpacked
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    pub(crate) wait: bool,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: Write,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: Kube,
    /// Registry flags.
    #[command(flatten)]
    pub(crate) registry: Registry,
}

/// Treatment of an existing object without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Collision {
    /// Keep it, and fail
    Prevent,
    /// Adopt it
    Adopt,
}

/// Treatment of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Drift {
    /// Restore them
    Correct,
    /// Only report them
    Report,
}

/// Treatment of the installed objects on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum Deletion {
    /// Delete them
    Delete,
    /// Keep them
    Orphan,
}

/// Treatment of a CustomResourceDefinition with custom resources on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum CustomResources {
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
pub(crate) enum Replace {
    /// All but Namespaces, CustomResourceDefinitions and volumes
    Always,
    /// Jobs that have completed or failed
    IfCompleted,
    /// None
    Never,
}

/// State to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// Do not wait
    False,
    /// Until it is installed
    True,
    /// Until it is installed and every object is healthy
    Healthy,
}
