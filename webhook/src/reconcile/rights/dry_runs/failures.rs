//! Combines the failed dry runs of content into one error that names the objects.

use bundle_core::diagnostic::{Code, codes};
use bundle_core::rights::{DryRunVerdict, concerns_rights};
use bundle_core::text::{MAX_MESSAGES, MessageList};

use crate::reconcile::apply::ApplyRejection;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::telemetry::metrics::Metrics;

/// Maximum number of objects in a message.
const MAX_NAMED: usize = MAX_MESSAGES;

/// Prefix of messages about objects that the API server cannot store.
pub(in crate::reconcile) const CANNOT_STORE: &str = "the API server cannot store: ";

/// The failed dry runs, grouped by kind of failure. Each text names the object.
#[derive(Default)]
pub(in crate::reconcile) struct DryRunFailures {
    /// Objects that the API server rejects as invalid, independent of the requester.
    pub(in crate::reconcile) invalid: MessageList,
    /// The object keys of the objects in `invalid`.
    pub(in crate::reconcile) invalid_keys: Vec<String>,
    pub(in crate::reconcile) refused: MessageList,
    /// Objects that the API server rejects although no permission is missing, for example because a
    /// quota is exhausted.
    pub(in crate::reconcile) rejected: MessageList,
    pub(in crate::reconcile) differs: MessageList,
    pub(in crate::reconcile) unsupported: MessageList,
    pub(in crate::reconcile) not_impersonated: MessageList,
    pub(in crate::reconcile) unknown: MessageList,
    /// Objects that the installing ServiceAccount cannot write.
    pub(in crate::reconcile) installer: MessageList,
    pub(in crate::reconcile) by_rbac: u64,
}

impl DryRunFailures {
    /// Adds the failed dry run of one object.
    pub(in crate::reconcile) fn add(&mut self, item: &PreparedObject, refusal: ApplyRejection) {
        let line = |words: String| format!("{}: {words}", item.key);
        let verdict = match refusal {
            ApplyRejection::Verdict(verdict)
            | ApplyRejection::Conflict(verdict)
            | ApplyRejection::SharedLists(verdict, _) => verdict,
            ApplyRejection::MutatedDifferently(_) => {
                return self.differs.insert(line(refusal.message()));
            }
            ApplyRejection::Installer(words) => return self.installer.insert(line(words)),
            ApplyRejection::DeletedOrCreated => {
                return self.unknown.insert(line(refusal.message()));
            }
        };
        match verdict {
            DryRunVerdict::Allowed => {}
            DryRunVerdict::Refused { message, by_rbac } => {
                self.by_rbac += u64::from(by_rbac);
                let list = if concerns_rights(&message, by_rbac) {
                    &mut self.refused
                } else {
                    &mut self.rejected
                };
                list.insert(line(message));
            }
            DryRunVerdict::Invalid(words) => {
                self.invalid.insert(line(words));
                self.invalid_keys.push(item.key.clone());
            }
            DryRunVerdict::Unsupported(words) => self.unsupported.insert(line(words)),
            DryRunVerdict::NotImpersonated(words) => self.not_impersonated.insert(words),
            DryRunVerdict::Missing(words) | DryRunVerdict::Unknown(words) => {
                self.unknown.insert(line(words));
            }
        }
    }

    /// Returns true if no dry run failed.
    pub(in crate::reconcile) fn is_empty(&self) -> bool {
        let Self {
            invalid,
            invalid_keys: _,
            refused,
            rejected,
            differs,
            unsupported,
            not_impersonated,
            unknown,
            installer,
            by_rbac: _,
        } = self;
        [
            invalid,
            refused,
            rejected,
            differs,
            unsupported,
            not_impersonated,
            unknown,
            installer,
        ]
        .iter()
        .all(|list| list.is_empty())
    }

    /// Logs and counts two kinds of objects: RBAC denied the dry run although access reviews were
    /// allowed, or mutating admission depends on the user. `users` are the requesters.
    pub(in crate::reconcile) fn count_disagreements(&self, users: &str, metrics: &Metrics) {
        if self.by_rbac > 0 {
            tracing::warn!(
                users,
                objects = self.by_rbac,
                "access reviews allowed objects that RBAC denied in the dry run"
            );
            metrics.authorization_disagreed(self.by_rbac);
        }
        if !self.differs.is_empty() {
            tracing::warn!(
                users,
                objects = self.differs.len(),
                "mutating admission changed objects of the requester differently than those of the installer"
            );
            let count = u64::try_from(self.differs.len()).unwrap_or(u64::MAX);
            metrics.authorization_disagreed(count);
        }
    }

    /// Returns the error for the kind of failure with the highest priority. Missing permissions of
    /// the requester have priority over invalid objects. Rejections have priority over unknown
    /// results.
    pub(in crate::reconcile) fn into_result(
        self,
        users: &str,
        reason: &'static str,
    ) -> Result<(), ReconcileError> {
        let kinds: [(MessageList, Code, String, RetryPolicy); 8] = [
            (
                self.refused,
                codes::install::REQUESTER_REFUSED,
                format!("the API server rejects the content for {users}: "),
                RetryPolicy::Slowly,
            ),
            (
                self.invalid,
                codes::install::INVALID_OBJECT,
                CANNOT_STORE.to_owned(),
                RetryPolicy::Rarely,
            ),
            (
                self.rejected,
                codes::install::OBJECT_REJECTED,
                "the API server rejects objects of the content (permissions are not the cause): "
                    .to_owned(),
                RetryPolicy::Slowly,
            ),
            (
                self.differs,
                codes::install::REQUESTER_DIFFERS,
                format!("mutating admission would change objects differently for {users}: "),
                RetryPolicy::Slowly,
            ),
            (
                self.unsupported,
                codes::install::DRY_RUN_UNSUPPORTED,
                format!("cannot check by dry run whether {users} can write the content: "),
                RetryPolicy::Slowly,
            ),
            (
                self.not_impersonated,
                codes::install::NOT_IMPERSONATED,
                format!("the pod has no permission to send dry runs as {users}: "),
                RetryPolicy::Slowly,
            ),
            (
                self.installer,
                codes::install::APPLY_FAILED,
                String::new(),
                RetryPolicy::Slowly,
            ),
            (
                self.unknown,
                codes::install::RIGHTS_UNKNOWN,
                format!("cannot check yet whether {users} can write the content: "),
                RetryPolicy::Soon,
            ),
        ];
        for (lines, code, begin, retry) in kinds {
            if !lines.is_empty() {
                let message = format!("{begin}{}", lines.joined(MAX_NAMED));
                let mut error = ReconcileError::new(code, reason, message, retry);
                if code == codes::install::INVALID_OBJECT {
                    error.objects = self.invalid_keys;
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bundle_api::names::reason;
    use bundle_core::object::rejection::Rejection;
    use bundle_core::rights::verdict;

    use super::*;

    /// Returns the rejection for a `Status` whose causes name these fields.
    fn rejected(code: u16, message: &str, fields: &[&str]) -> ApplyRejection {
        ApplyRejection::Verdict(verdict(Rejection {
            code,
            reason: "Invalid",
            message,
            fields,
        }))
    }

    #[test]
    fn object_that_is_rejected_for_every_user_is_no_missing_permission() {
        let invalid = r#"ConfigMap "web" is invalid: data[a b]: Invalid value"#;
        let (none, field): (&[&str], &[&str]) = (&[], &["data[a b]"]);
        for (status, message, fields, code) in [
            (422, invalid, field, codes::install::INVALID_OBJECT),
            // Without a field name in the status, the cause can be something else than the values
            // of the object.
            (422, invalid, none, codes::install::OBJECT_REJECTED),
            (
                422,
                "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no",
                field,
                codes::install::REQUESTER_REFUSED,
            ),
            (
                422,
                r#"admission webhook "w.example.com" denied the request: no"#,
                field,
                codes::install::REQUESTER_REFUSED,
            ),
            (
                403,
                r#"configmaps "web" is forbidden: exceeded quota: q"#,
                none,
                codes::install::OBJECT_REJECTED,
            ),
            (
                403,
                r#"configmaps "web" is forbidden: User "ana" cannot patch resource "configmaps""#,
                none,
                codes::install::REQUESTER_REFUSED,
            ),
        ] {
            let mut failures = DryRunFailures::default();
            failures.add(
                &PreparedObject::config_map(),
                rejected(status, message, fields),
            );
            let error = failures.into_result("ana", reason::RECONCILE_FAILED);
            let error = error.unwrap_err();
            assert_eq!(error.code, code, "{message}");
            assert!(error.message.contains(message), "{}", error.message);
        }
    }

    #[test]
    fn refusal_for_the_requester_is_reported_before_an_invalid_object() {
        let invalid = r#"ConfigMap "web" is invalid: data[a b]: Invalid value"#;
        let policy = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
        let mut failures = DryRunFailures::default();
        for refusal in [
            rejected(422, invalid, &["data[a b]"]),
            rejected(422, policy, &[]),
        ] {
            failures.add(&PreparedObject::config_map(), refusal);
        }
        let error = failures.into_result("ana", reason::RECONCILE_FAILED);
        let error = error.unwrap_err();
        assert_eq!(error.code, codes::install::REQUESTER_REFUSED);
        assert!(error.objects.is_empty(), "{error:?}");
    }

    #[test]
    fn memory_of_failures_does_not_grow_with_the_number_of_objects() {
        let message = "x".repeat(400 << 10);
        let mut failures = DryRunFailures::default();
        for number in 0..300 {
            let mut item = PreparedObject::config_map();
            item.key = format!("ConfigMap/team-a/{number:03}");
            failures.add(&item, rejected(403, &message, &[]));
        }
        let kept: usize = failures.rejected.messages().map(str::len).sum();
        assert!(kept < 20 << 10, "{kept}");
        let error = failures.into_result("ana", reason::RECONCILE_FAILED);
        let message = error.unwrap_err().message;
        assert!(message.ends_with("; and 299 more"), "{}", message.len());
    }

    #[test]
    fn refusal_by_rbac_in_a_dry_run_after_allowed_reviews_is_counted_as_a_disagreement() {
        let message =
            r#"configmaps "web" is forbidden: User "ana" cannot patch resource "configmaps""#;
        let by_rbac = || rejected(403, message, &[]);
        let by_policy = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: no";
        let mut failures = DryRunFailures::default();
        failures.add(&PreparedObject::config_map(), by_rbac());
        failures.add(&PreparedObject::config_map(), by_rbac());
        // A rejection by a policy is not counted, because access reviews do not evaluate policies.
        failures.add(&PreparedObject::config_map(), rejected(422, by_policy, &[]));
        assert_eq!(failures.by_rbac, 2);
        let metrics = Metrics::default();
        failures.count_disagreements("ana", &metrics);
        let page = metrics.page();
        let line = "bundle_authorization_disagreements_total 2";
        assert!(page.lines().any(|found| found == line), "{page}");
    }
}
