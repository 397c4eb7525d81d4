//! Permissions that a requester needs for the content of a bundle. The reconciler sends the access
//! reviews. Admission checks the permission to use a class.

mod answer;
mod compact;
mod dry_run;
mod mutation;
mod needs;
mod order;
mod required;
mod role_rules;
mod roles;

pub use answer::DryRunObject;
pub use compact::{ScopedRule, compact};
pub use dry_run::{DryRunVerdict, concerns_rights, verdict};
pub use mutation::{
    DryRunComparison, MutatedKinds, ObjectChanged, RemovedMetadata, records_requester,
    unexpected_changes,
};
pub use needs::{Need, Target, VERBS, needs};
pub use order::ContentDependencies;
pub use required::{Required, required};
pub use role_rules::{AccessReviewBudget, RoleRule, rules_after};
pub use roles::{Grant, RoleRef, Rule, creator_permission, grant, needs_only_verbs};

use serde::Serialize;

/// SubjectAccessReview to send.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub enum AccessReview {
    /// Permission for objects.
    Resource {
        /// Verb: `create`, `patch`, `bind`, or `*` for all verbs.
        verb: String,
        /// API group; empty for the core group, `*` for all groups.
        group: String,
        /// Plural name of the resource. A subresource follows a slash: `pods/log`.
        resource: String,
        /// Namespace; empty for cluster-scoped objects and for all namespaces.
        namespace: String,
        /// Name of the object; `None` for all objects.
        name: Option<String>,
    },
    /// Permission for a path of the API server that is not a resource.
    Path {
        /// Verb: `get`, or `*` for all verbs.
        verb: String,
        /// Path, such as `/metrics` or `/healthz/*`.
        path: String,
    },
}

impl AccessReview {
    /// Returns an access review for objects.
    pub fn resource(
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
        name: Option<&str>,
    ) -> Self {
        Self::Resource {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.unwrap_or_default().to_owned(),
            name: name.map(str::to_owned),
        }
    }

    /// Returns an access review for verb `impersonate` on a ServiceAccount.
    pub fn impersonation(namespace: &str, name: &str) -> Self {
        Self::resource(
            "impersonate",
            "",
            "serviceaccounts",
            Some(namespace),
            Some(name),
        )
    }
}
