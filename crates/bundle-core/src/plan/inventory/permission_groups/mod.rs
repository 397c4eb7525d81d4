//! Groups of BundleDeployments for the periodic permission checks. All members of a group need the
//! permissions of the same requesters for the same class and ServiceAccount. Therefore one access
//! review of a kind and namespace is valid for all members. A group check only finds members whose
//! permissions may be missing. The reconcile of such a member then repeats the check and reports
//! the result.

use std::collections::BTreeSet;
use std::time::Duration;

use bundle_api::names;

use crate::json;
use crate::object::GroupKind;
use crate::plan::rollout::RolloutState;
use crate::review::Requester;
use crate::review::class::{Approval, Authorization};
use crate::rights::{AccessReview, VERBS, needs_only_verbs};
use crate::service_account::ServiceAccount;

use super::{Inventory, parts};

/// Maximum number of scopes of a member of a group. Content with more scopes is checked alone, so
/// that the check of one member is short.
const MAX_SCOPES: usize = 256;
/// Plural name of the kind ProvisionerClass.
const CLASSES: &str = "provisionerclasses";

/// Requesters of content, and the terms that they must be allowed to use: classes and
/// ServiceAccount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReviewTerms {
    /// Distinct requesters of all parts of the content.
    pub requesters: Vec<Requester>,
    /// Class of the BundleDeployment.
    pub class: String,
    /// Class of the Bundle.
    pub bundle_class: String,
    /// `spec.serviceAccount`.
    pub service_account: Option<ServiceAccount>,
}

/// SHA-256 hash of [`ReviewTerms`]. The hash covers all fields of the requesters that authorizers
/// read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey([u8; 32]);

impl ReviewTerms {
    /// Returns the access reviews for these terms, each with its requester: verb `use` on the
    /// classes, and verb `impersonate` on the ServiceAccount. `system_namespace` is the namespace
    /// of the pod.
    pub fn questions(&self, system_namespace: &str) -> Vec<(&Requester, AccessReview)> {
        let use_of = |class: &str| {
            let namespace = Some(system_namespace);
            AccessReview::resource(
                names::verb::USE,
                names::GROUP,
                CLASSES,
                namespace,
                Some(class),
            )
        };
        let mut questions = vec![use_of(&self.class)];
        if self.bundle_class != self.class {
            questions.push(use_of(&self.bundle_class));
        }
        if let Some(account) = &self.service_account {
            questions.push(AccessReview::impersonation(
                &account.namespace,
                &account.name,
            ));
        }
        questions
            .into_iter()
            .flat_map(|question| {
                let requesters = self.requesters.iter();
                requesters.map(move |requester| (requester, question.clone()))
            })
            .collect()
    }

    /// Returns the key of the group with these terms.
    pub fn key(&self) -> GroupKey {
        let account = self.service_account.as_ref().map(ServiceAccount::path);
        GroupKey(json::sha256(&(
            &self.requesters,
            &self.class,
            &self.bundle_class,
            account,
        )))
    }

    /// Returns the size of the requesters as JSON, in bytes.
    fn bytes(&self) -> usize {
        json::length(&self.requesters)
    }
}

/// Facts about a BundleDeployment at the end of a reconcile without an error, whose permissions are
/// allowed.
#[derive(Debug, Clone, Copy)]
pub struct GroupCandidate<'a> {
    /// `authorization` of the class.
    pub authorization: Authorization,
    /// `approval` of the class.
    pub approval: Approval,
    /// True if the reconcile maintained the former content instead of the content of the spec.
    pub is_rollback: bool,
    /// True if the installed content has requesters who are not requesters of the spec.
    pub has_departed_requesters: bool,
    /// True if reconciles renew serving certificates in the content.
    pub has_certificates: bool,
    /// Inventory of the BundleDeployment.
    pub inventory: &'a Inventory,
    /// `metadata.generation`.
    pub generation: i64,
    /// Delay of the next reconcile without the permission check; `None` if only a change starts the
    /// next reconcile.
    pub next_reconcile: Option<Duration>,
    /// Interval of the permission checks.
    pub interval: Duration,
}

impl GroupCandidate<'_> {
    /// Returns true if the group with `terms` can check the BundleDeployment. In all other cases,
    /// reconciles of the BundleDeployment check its permissions.
    ///
    /// A BundleDeployment whose next reconcile is due within the interval gains nothing from a
    /// group.
    pub fn is_eligible(&self, terms: &ReviewTerms) -> bool {
        self.authorization == Authorization::Requester
            && self.approval == Approval::None
            && !self.is_rollback
            && !self.has_departed_requesters
            && !self.has_certificates
            && self.next_reconcile.is_none_or(|wait| wait >= self.interval)
            && self.is_completely_installed()
            && terms.bytes() <= self.inventory.counted_bytes()
            && reviewed_scopes(self.inventory).is_some()
    }

    /// Returns true if the content is completely installed, and its rollout was successful.
    fn is_completely_installed(&self) -> bool {
        let Some(record) = &self.inventory.record else {
            return false;
        };
        let attempt = record.rollout.of_generation(self.generation);
        record.installed.is_some()
            && !record.is_unfinished
            && attempt.is_none_or(|attempt| attempt.state == RolloutState::Healthy)
    }
}

/// Returns the scopes of the recorded objects: each kind with each of its namespaces. Returns
/// `None` if access reviews of these scopes are not a complete check: nothing is recorded, a key is
/// invalid, a kind requires further permissions, or there are more than 256 scopes.
pub fn reviewed_scopes(inventory: &Inventory) -> Option<BTreeSet<(GroupKind, Option<&str>)>> {
    let mut scopes = BTreeSet::new();
    for (key, _) in inventory.objects() {
        let (kind, namespace, _) = parts(key)?;
        if !needs_only_verbs(&kind) {
            return None;
        }
        scopes.insert((kind, namespace));
        if scopes.len() > MAX_SCOPES {
            return None;
        }
    }
    (!scopes.is_empty()).then_some(scopes)
}

/// Returns the access reviews for all objects of a kind in a namespace. `resource` is the plural
/// name of the kind. These are the general reviews of [`crate::rights::needs`].
pub fn scope_questions(
    group: &str,
    resource: &str,
    namespace: Option<&str>,
) -> [AccessReview; VERBS.len()] {
    VERBS.map(|verb| AccessReview::resource(verb, group, resource, namespace, None))
}

/// Returns the time of the next check of a group after a member joined. `group` is the time of its
/// next check before; `None` for a new group. `member` is the time of the next check of the member.
/// If `is_first` is true, this time is random, and no earlier check requires it.
pub fn due_with_member<T: Ord>(group: Option<T>, member: T, is_first: bool) -> T {
    match group {
        None => member,
        Some(group) if is_first => group,
        Some(group) => group.min(member),
    }
}

/// End of one run of a group check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunEnd {
    /// All members were checked.
    Complete,
    /// Requests failed.
    Failed,
    /// The time limit of the run was reached.
    TimedOut {
        /// True if the terms were allowed, and the run began to check members.
        has_terms: bool,
    },
}

/// Time of the next run of a group check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextRun {
    /// Check all members again, one interval after the start of this check.
    AfterInterval,
    /// Continue after the delay for unknown permissions.
    AfterFailure,
    /// Continue after the groups that are already due.
    Now,
}

impl RunEnd {
    /// Returns the time of the next run.
    pub fn next_run(self) -> NextRun {
        match self {
            Self::Complete => NextRun::AfterInterval,
            Self::Failed | Self::TimedOut { has_terms: false } => NextRun::AfterFailure,
            Self::TimedOut { has_terms: true } => NextRun::Now,
        }
    }
}

#[cfg(test)]
mod tests;
