//! Whether content may be put in place: where it lands, whose signatures it has, who approved it.
//! Not here: what its requester may do (rights::requester_rights), and the questions themselves (bundle::verify, deployment::approve).

use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::{ActingAccount, Consent, ConsentRule, DenialReason, ObjectAction};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::downgrade;
use bundle_core::plan::status::ApprovalFact;
use bundle_core::review::class::Approval;
use bundle_core::review::target::{check_target, in_reserved_namespaces};

use crate::reconcile::bundle::generated;
use crate::reconcile::bundle::verify;
use crate::reconcile::content::items::Item;
use crate::reconcile::content::reader;
use crate::reconcile::deployment::approve;
use crate::reconcile::deployment::controller::{DeploymentReconcile, LISTED};
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

impl DeploymentReconcile<'_> {
    /// The namespace of objects that name none. Never one of the pod's own, where a Pod of the content could read the keys: admission refuses that, and
    /// here it is refused to specs that were written while admission was off.
    pub(in crate::reconcile) fn target_namespace(&self) -> Result<Option<&str>, ReconcileError> {
        let settings = &self.ctx.shared.settings;
        let target = self.spec.target_namespace.as_deref();
        check_target(target, &settings.namespace, &settings.state_namespace).map_err(|why| {
            ReconcileError::new(
                codes::install::RESERVED_NAMESPACE,
                self.install_reason(),
                format!("spec.targetNamespace: {why}; name the namespace that it is for"),
                RetryPolicy::OnChange,
            )
        })?;
        Ok(target)
    }

    pub(in crate::reconcile) fn within_targets(
        &self,
        items: &[Item],
    ) -> Result<(), ReconcileError> {
        self.outside_reserved_namespaces(items)?;
        // Where content may land depends on no earlier decision.
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
        Err(ReconcileError::new(
            codes::install::OUTSIDE_TARGETS,
            self.install_reason(),
            format!(
                "class {} does not let content land there: {}",
                self.class.name,
                some_of(&outside, LISTED)
            ),
            RetryPolicy::OnChange,
        ))
    }

    /// Checks that no object of the content names a namespace of the webhook, unless the class
    /// does so too.
    fn outside_reserved_namespaces(&self, items: &[Item]) -> Result<(), ReconcileError> {
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
        Err(ReconcileError::new(
            codes::install::RESERVED_NAMESPACE,
            self.install_reason(),
            format!(
                "objects of the content are in a namespace of bundle-webhook: {}; change their namespace, or list it by its exact name in spec.targets.namespaces of class {}",
                some_of(&reserved, LISTED),
                self.class.name,
            ),
            RetryPolicy::OnChange,
        ))
    }

    /// Whether the Bundle of the template is the content that was installed from it: one that was deleted and made anew may be what a moved tag names now, and
    /// for that nobody asked.
    pub(in crate::reconcile) fn is_what_it_was(
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
        // Of an earlier version: neither the history nor the version of what is installed is known.
        if self.inventory.record.is_none()
            && !installation.is_empty()
            && !installation.starts_with(&format!("{digest} "))
        {
            let was = installation.split(' ').next().unwrap_or_default();
            return changed(format!(
                "an earlier version of bundle-webhook installed {was} and did not record all that is needed to follow it: deploy {was} once more, by its digest, before other content"
            ));
        }
        let hash = &self.spec.template.hash;
        let names = generated::candidates(self.ctx, self.object, hash, &[]);
        let revisions = self.core_revisions();
        let mut of_template = revisions
            .iter()
            .filter(|revision| names.contains(&revision.bundle));
        match of_template.find(|revision| revision.digest != digest) {
            Some(revision) => changed(format!(
                "Bundle {bundle} was made anew and is {digest} now; {} was installed from this template and stays: to install what the source names now, change the template",
                revision.digest
            )),
            None => Ok(()),
        }
    }

    /// Whether the class takes content from there: it may have been narrowed since admission, and the Bundle asked its own class only.
    pub(in crate::reconcile) fn takes_source(&self) -> Result<(), ReconcileError> {
        let source = &self.spec.template.bundle.source;
        let field = "spec.template.spec.source";
        self.class.takes(source, field).map_or(Ok(()), |finding| {
            Err(ReconcileError::findings(
                self.install_reason(),
                &finding.into(),
                RetryPolicy::OnChange,
            ))
        })
    }

    /// Verifies the content once more before it is first installed: policies may have changed since it was unpacked.
    pub(in crate::reconcile) async fn verify(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<(), ReconcileError> {
        let id = request.source()?;
        let user = &self.requester.user;
        let source = reader::open(self.ctx, id.source(), user, request.reason).await?;
        let bundle = &request.generated.object;
        let verified = verify::verify(self.ctx, self.class, &source, bundle, id)
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

    /// Sets the condition `Approved` by the present class, for content that is not in place. It says nothing of content that is not known yet.
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

    /// Whether the content is approved. A withdrawn approval is told, and tears nothing down: only content that is new waits for one.
    pub(in crate::reconcile) async fn approve(
        &mut self,
        request: &InstallRequest<'_>,
        first: bool,
    ) -> Result<(), ReconcileError> {
        let approved = approve::approved(
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
