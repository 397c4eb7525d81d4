//! Arguments of `deploy` and `create`.

use clap::{Args, ValueEnum};

use super::{DryRun, Kube, Object, Registry};

/// Flags that both verbs have.
#[derive(Debug, Args)]
pub(crate) struct Content {
    /// Class of provisioner that installs it [default: the one that the object has, else the one
    /// that reads the package's format]
    #[arg(long, value_name = "NAME")]
    pub(crate) class: Option<String>,
    /// Name of a Secret in the system namespace with credentials for the registry; an empty name
    /// removes it
    #[arg(long, value_name = "NAME")]
    pub(crate) pull_secret: Option<String>,
    /// Leave a tag as it is instead of pinning it to the digest that it names now
    #[arg(long)]
    pub(crate) keep_tag: bool,
    /// Carry manifest and signatures on the object, so that admission needs no registry
    #[arg(long, conflicts_with = "keep_tag")]
    pub(crate) with_proof: bool,
}

/// Flags of writes.
#[derive(Debug, Args)]
pub(crate) struct Write {
    /// Do not change the cluster: `server` asks it what it would do
    #[arg(long, value_name = "MODE", value_enum, num_args = 0..=1, require_equals = true, default_value_t = DryRun::None, default_missing_value = "client")]
    pub(crate) dry_run: DryRun,
    /// Take over fields that somebody else manages
    #[arg(long)]
    pub(crate) force_conflicts: bool,
    /// How long to wait; 0 is without limit
    #[arg(long, value_name = "DURATION", default_value = "5m")]
    pub(crate) timeout: String,
    /// Print the object instead of what became of it
    #[arg(short, long, value_name = "FORMAT", value_enum)]
    pub(crate) output: Option<Object>,
}

/// Install a bundle: create or update a BundleDeployment with the Bundle in its template.
///
/// The same command with another reference upgrades. A tag is pinned to the digest that it names
/// now. Settings whose flags are not given keep their values, and each field that changes is
/// printed. With --wait the command ends at once when something stands in the way that no time
/// heals, and prints the cause.
///
/// Objects of the content that name no namespace go into that of -n (spec.targetNamespace); without
/// one, content with such objects is refused. The namespace of the context does not count. A
/// ServiceAccount without a namespace is in that of -n as well, as that of a Pod is in the Pod's
/// own; write NAMESPACE/NAME for one that is elsewhere. An operator bundle (registry+v1) is
/// installed into the namespace of -n, else into the one that it suggests, which it then brings
/// itself.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Install, and wait until it is done
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --wait

  # Upgrade, and wait until every object is healthy; class and all other settings stay as they are
  kubectl bundle deploy web registry.example.com/team/web:1.5.0 --wait=healthy

  # Objects without a namespace go into team-a
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a

  # The same, with team-a created if it is missing
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 -n team-a --create-namespace

  # As a ServiceAccount of your own
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --service-account team-a/deployer

  # What would be sent, for a GitOps repository
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=client -o yaml

  # What the cluster would say
  kubectl bundle deploy web registry.example.com/team/web:1.4.0 --dry-run=server")]
pub(crate) struct Deploy {
    /// Name of the BundleDeployment, at most 45 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
    #[arg(value_name = "REF")]
    pub(crate) reference: String,
    /// Flags of the content.
    #[command(flatten)]
    pub(crate) content: Content,
    /// Install as this ServiceAccount instead of the class's: NAMESPACE/NAME, or a name in the
    /// namespace of -n; an empty value goes back to the class's
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) service_account: Option<String>,
    /// Create the namespace of -n if it is missing; with the content it is deleted only if nothing
    /// else is in it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) create_namespace: Option<bool>,
    /// What to do with an object of the content that exists already and belongs to nobody
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) collision: Option<Collision>,
    /// Treatment of installed objects that somebody changed
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) drift: Option<Drift>,
    /// Change nothing as long as this is true: neither new content nor drift
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) paused: Option<bool>,
    /// Treatment of the installed objects when the BundleDeployment is deleted
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) deletion: Option<Deletion>,
    /// Treatment then of a CustomResourceDefinition of which objects exist
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) custom_resources: Option<CustomResources>,
    /// Objects to delete and create anew if a field changes that cannot be changed; the annotation
    /// core.rukpak.io/replace of an object overrides it
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) replace: Option<Replace>,
    /// Wait until it is installed, or with --wait=healthy until its objects are healthy as well
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

/// Create a Bundle: content that is pulled, verified and kept, but not installed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kubectl bundle create web-1-4-0 registry.example.com/team/web:1.4.0 --wait")]
pub(crate) struct Create {
    /// Name of the Bundle, at most 52 characters
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// The bundle: REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@DIGEST
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
    /// Leave it, and fail
    Prevent,
    /// Take it over
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
    /// Leave them
    Orphan,
}

/// Treatment of a CustomResourceDefinition with custom resources on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum CustomResources {
    /// Delete nothing, and wait until they are gone
    Refuse,
    /// Leave the definition and its objects
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
