//! Checks before content is installed: target namespaces, reserved namespaces, source, signatures
//! and approval.

use bundle_core::diagnostic::codes;
use bundle_core::object::ObjectId;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, DenialReason, ObjectAction};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::downgrade;
use bundle_core::plan::status::ApprovalFact;
use bundle_core::review::class::Approval;
use bundle_core::review::target::{check_target, in_reserved_namespaces};

use crate::reconcile::bundle::generated;
use crate::reconcile::bundle::verify::{self, BundleToVerify};
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment::checks::approvals;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::{MAX_LISTED, ReconcileError, RetryPolicy};
use crate::reconcile::reader;
use crate::sources::SourceOwner;

impl DeploymentReconcile<'_> {
    /// Returns the target namespace for objects that set no namespace. Rejects the namespaces of
    /// the webhook, because a Pod in these namespaces could mount the Secrets with the keys.
    /// Admission also rejects these namespaces, but a spec can be written while admission is off.
    pub(in crate::reconcile) fn target_namespace(&self) -> Result<Option<&str>, ReconcileError> {
        let settings = &self.ctx.shared.settings;
        let target = self.spec.target_namespace.as_deref();
        check_target(target, &settings.namespace, &settings.state_namespace).map_err(|why| {
            ReconcileError::new(
                codes::install::RESERVED_NAMESPACE,
                self.install_reason(),
                format!("spec.targetNamespace: {why}; set the namespace of the workload"),
                RetryPolicy::OnChange,
            )
        })?;
        Ok(target)
    }

    pub(in crate::reconcile) fn check_targets(
        &self,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        self.check_reserved_namespaces(items)?;
        // The rule needs no recorded decisions of the class, because the allowed namespaces do not
        // depend on these decisions.
        let rule = ConsentRule::new(
            Some(self.class),
            ActingAccount::Granted,
            DecidedObjects::None,
        );
        let refused = Consent::Denied(DenialReason::OutsideTargets);
        let outside: Vec<_> = items
            .iter()
            .map(|item| &item.id)
            .filter(|id| rule.consent(ObjectAction::Install, id) == refused)
            .collect();
        if outside.is_empty() {
            return Ok(());
        }
        let class = &self.class.name;
        Err(outside_targets(&outside, class, self.install_reason()))
    }

    /// Checks that no object is in a namespace of the webhook. A namespace that the class lists by
    /// its exact name is allowed.
    fn check_reserved_namespaces(&self, items: &[PreparedObject]) -> Result<(), ReconcileError> {
        let settings = &self.ctx.shared.settings;
        let reserved = in_reserved_namespaces(
            items.iter().map(|item| &item.id),
            &self.class.namespaces,
            &settings.namespace,
            &settings.state_namespace,
        );
        if reserved.is_empty() {
            return Ok(());
        }
        let class = &self.class.name;
        Err(in_reserved_namespace(
            &reserved,
            class,
            self.install_reason(),
        ))
    }

    /// Checks that the generated Bundle still has the content that was installed from this
    /// template. If a Bundle is deleted, and created again after its tag has moved, the new Bundle
    /// has other content. No user requested this other content.
    pub(in crate::reconcile) fn check_content_unchanged(
        &self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let changed = |message: String| {
            Err(ReconcileError::new(
                codes::install::CONTENT_CHANGED,
                request.reason,
                message,
                RetryPolicy::OnChange,
            ))
        };
        let (bundle, digest) = (&request.generated.name, request.digest());
        let installation = &self.inventory.installation;
        // An earlier version of the program recorded neither the revisions nor the version of the
        // installed content. Therefore only the digest is compared.
        if self.inventory.record.is_none()
            && !installation.is_empty()
            && installation.content_digest() != digest
        {
            let was = installation.content_digest();
            return changed(format!(
                "an earlier version of bundle-webhook installed {was} without a complete record: deploy {was} again, by its digest, before other content"
            ));
        }
        let hash = &self.spec.template.hash;
        let names = generated::candidate_names(self.ctx, self.object, hash, &[]);
        let revisions = self.core_revisions();
        let mut of_template = revisions
            .iter()
            .filter(|revision| names.contains(&revision.bundle));
        match of_template.find(|revision| revision.digest != digest) {
            Some(revision) => changed(format!(
                "Bundle {bundle} was deleted and created again with content {digest}; {} was installed from this template and stays; to install the new content, change the template",
                revision.digest
            )),
            None => Ok(()),
        }
    }

    /// Checks that the class of the BundleDeployment allows the source of the content. Admission of
    /// the BundleDeployment also checks the source, but the class may have changed after admission.
    /// Admission of the Bundle checks only the class of the Bundle.
    pub(in crate::reconcile) fn check_source_allowed(&self) -> Result<(), ReconcileError> {
        let bundle = &self.spec.template.bundle;
        let source = &bundle.source;
        let field = "spec.template.spec.source";
        let is_insecure = source
            .host()
            .is_some_and(|host| self.ctx.shared.allows_insecure(&bundle.class, host));
        self.class
            .source_rejection(source, field)
            .or_else(|| {
                self.class
                    .insecure_image_rejection(source, is_insecure, field)
            })
            .map_or(Ok(()), |finding| {
                Err(ReconcileError::findings(
                    self.install_reason(),
                    &finding.into(),
                    RetryPolicy::OnChange,
                ))
            })
    }

    /// Verifies the content again before its first installation, because policies may have changed
    /// since the content was unpacked. Also rejects a downgrade that a policy does not allow.
    pub(in crate::reconcile) async fn verify(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let id = request.source()?;
        let owner = SourceOwner {
            class: request.class(),
            requester: &self.requester,
            uid: None,
        };
        let source = reader::open(self.ctx, id.source(), owner, request.reason).await?;
        let generated = &request.generated;
        let bundle = BundleToVerify {
            name: &generated.name,
            uid: generated.object.metadata.uid.as_deref(),
            proof: verify::proof(&generated.object),
        };
        let verified = verify::verify(self.ctx, self.class, &source, &bundle, id)
            .await
            .map_err(|error| ReconcileError {
                reason: request.reason,
                ..error
            })?;
        self.applied_policies = verified.policies;
        let installed = self.installed_content();
        let wanted = request.generated.content.as_ref();
        let refusal = downgrade::refusal(
            installed.and_then(|installed| installed.version.as_deref()),
            wanted.and_then(|content| content.version.as_deref()),
            &verified.decided.no_downgrade,
        );
        match refusal {
            Some(finding) => Err(ReconcileError::findings(
                request.reason,
                &finding.into(),
                RetryPolicy::Slowly,
            )),
            None => Ok(()),
        }
    }

    /// Sets the fact for the condition `Approved` of content that is not installed, according to
    /// the current class. If the digest of the content is not known yet (`is_known` is false), the
    /// condition reports this state.
    pub(in crate::reconcile) async fn show_approval(
        &mut self,
        request: &InstallRequest<'_>,
        is_known: bool,
    ) {
        if is_known || self.class.approval == Approval::None {
            self.approve(request, true).await.ok();
            return;
        }
        let class = self.class.name.clone();
        self.facts.approval = Some(ApprovalFact::ContentUnknown(class));
    }

    /// Checks that the content is approved, and sets the fact for the condition `Approved`. `first`
    /// is true if the content is not completely installed yet. If `first` is false, a missing
    /// approval is not an error, because a withdrawn approval does not affect installed content.
    pub(in crate::reconcile) async fn approve(
        &mut self,
        request: &InstallRequest<'_>,
        first: bool,
    ) -> Result<(), ReconcileError> {
        let approved = approvals::approver(
            self.ctx,
            self.object,
            self.class,
            &self.parts,
            request.digest(),
        )
        .await;
        match approved {
            Ok(by) => {
                self.facts.approval = Some(match &by {
                    Some(user) => ApprovalFact::Approved {
                        by: user.clone(),
                        digest: request.digest().to_owned(),
                    },
                    None => ApprovalFact::NotRequired(self.class.name.clone()),
                });
                self.approved_by = by;
                Ok(())
            }
            Err(error) => {
                self.facts.approval = Some(ApprovalFact::NotApproved(error.message.clone()));
                if !first {
                    return Ok(());
                }
                Err(ReconcileError {
                    reason: self.install_reason(),
                    ..error
                })
            }
        }
    }
}

/// Returns the error for objects that `spec.targets` of class `class` does not allow.
pub(in crate::reconcile) fn outside_targets(
    objects: &[&ObjectId],
    class: &str,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::OUTSIDE_TARGETS,
        reason,
        format!(
            "class {class} does not allow these objects or namespaces: {}; use another namespace or class",
            some_of(objects, MAX_LISTED)
        ),
        RetryPolicy::OnChange,
    )
}

/// Returns the error for objects in a namespace of the webhook that `class` does not list by its
/// exact name.
pub(in crate::reconcile) fn in_reserved_namespace(
    objects: &[&ObjectId],
    class: &str,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::RESERVED_NAMESPACE,
        reason,
        format!(
            "objects of the content are in a namespace of bundle-webhook: {}; change their namespace, or list this namespace by its exact name in spec.targets.namespaces of class {class}",
            some_of(objects, MAX_LISTED)
        ),
        RetryPolicy::OnChange,
    )
}
