//! Flags of a BundleDeployment, which `deploy`, `adopt` and `run` share.

use bundle_api::deployment::{
    Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace, WaitFor,
};
use clap::{Args, ValueEnum};

use super::arguments::{WaitFlag, WriteFlags};
use super::bundle_spec::Setting;
use super::deployment::{DeploymentSettings, DeploymentWrite};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment, service_account};

/// Flags for all fields of the spec except the template, and for the wait.
#[derive(Debug, Args)]
pub(crate) struct DeploymentFlags {
    /// Install as this ServiceAccount instead of the ServiceAccount of the class: NAMESPACE/NAME,
    /// or a name in the namespace of -n; an empty value restores the ServiceAccount of the class
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub(crate) service_account: Option<String>,
    /// Create the namespace of -n if it is missing; when the content is deleted, the namespace is
    /// deleted only if it is empty
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) create_namespace: Option<bool>,
    /// Treatment of an existing object without an owner
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) collision: Option<CollisionFlag>,
    /// Treatment of drift of installed objects
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) drift: Option<DriftFlag>,
    /// Pause: apply no new content, and do not correct drift
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) paused: Option<bool>,
    /// Treatment of the installed objects when the BundleDeployment is deleted
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) deletion: Option<DeletionFlag>,
    /// Treatment of a CustomResourceDefinition with custom resources when the BundleDeployment is
    /// deleted
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) custom_resources: Option<CustomResourcesFlag>,
    /// Objects to delete and create again if an immutable field changes; overridden by the
    /// annotation core.rukpak.io/replace of an object
    #[arg(long, value_name = "MODE", value_enum, ignore_case = true)]
    pub(crate) replace: Option<ReplaceFlag>,
    /// Condition under which bundle-webhook starts the next phase of an installation; for a wait of
    /// this command see --wait
    #[arg(long, value_name = "CONDITION", value_enum, ignore_case = true)]
    pub(crate) wait_for: Option<WaitForFlag>,
    /// Range of versions that may be installed, such as ^1.4; an empty value allows every version
    #[arg(long, value_name = "RANGE")]
    pub(crate) versions: Option<String>,
    /// Wait until the content is installed or, with --wait=healthy, until its objects are healthy
    /// too
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, value_enum, default_value_t = WaitFlag::False, default_missing_value = "true")]
    pub(crate) wait: WaitFlag,
}

impl DeploymentFlags {
    /// Returns the settings for writing the BundleDeployment `name`.
    pub(crate) fn settings(
        self,
        name: String,
        write: &WriteFlags,
        kube: ClusterFlags,
        environment: &Environment,
    ) -> Outcome<DeploymentWrite> {
        let account = match self.service_account.as_deref() {
            None => Setting::Keep,
            Some("") => Setting::Unset,
            Some(text) => Setting::Set(service_account(
                "--service-account",
                text,
                kube.namespace.as_deref(),
            )?),
        };
        let (waits, goal) = self.wait.goal();
        Ok(DeploymentWrite {
            name,
            settings: DeploymentSettings {
                service_account: account,
                target_namespace: kube.namespace.clone(),
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
                wait_for: self.wait_for.map(|condition| match condition {
                    WaitForFlag::Applied => WaitFor::Applied,
                    WaitForFlag::Ready => WaitFor::Ready,
                }),
                versions: match self.versions {
                    None => Setting::Keep,
                    Some(range) if range.is_empty() => Setting::Unset,
                    Some(range) => Setting::Set(range),
                },
            },
            goal,
            write: write.settings(waits, kube, environment)?,
        })
    }
}

/// Treatment of an existing object without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum CollisionFlag {
    /// Keep the existing object, and fail
    Prevent,
    /// Adopt the existing object
    Adopt,
}

/// Treatment of drift.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum DriftFlag {
    /// Restore the changed objects
    Correct,
    /// Only report the changed objects
    Report,
}

/// Treatment of the installed objects on deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum DeletionFlag {
    /// Delete the objects
    Delete,
    /// Keep the objects
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
    /// Delete the definition and its custom resources
    Delete,
}

/// Treatment of objects with immutable fields that change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum ReplaceFlag {
    /// All objects except Namespaces, CustomResourceDefinitions and volumes
    Always,
    /// Jobs that have completed or failed
    IfCompleted,
    /// No objects
    Never,
}

/// Condition under which the next phase of an installation starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "PascalCase")]
pub(crate) enum WaitForFlag {
    /// All objects of the current phase are applied
    Applied,
    /// All objects of the current phase are applied and healthy
    Ready,
}
