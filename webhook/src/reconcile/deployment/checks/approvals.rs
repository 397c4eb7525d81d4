//! Approvals of content digests, if the class requires approvals. Finds a valid BundleApproval, and
//! writes the status of each BundleApproval. Admission also checks the approver when a
//! BundleApproval is written.

use bundle_api::approval::{BundleApprovalSpec, BundleApprovalStatus};
use bundle_api::names::{self, condition, reason};
use bundle_cluster::access;
use bundle_cluster::account::{self, LostAccount};
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::ConditionStatus;
use bundle_core::review::class::Approval;
use bundle_core::review::{
    Class, Kind, PartRequesters, Requester, approval_terms, has_default_terms,
};
use bundle_core::rights::AccessReview;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use serde::Deserialize as _;

use crate::reconcile::context::Context;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::seal;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::{status_of, writer};

/// Returns the user who approved `digest` for `deployment`, or `None` if the class requires no
/// approval. Fails if no approval is valid. The permission of the approver is checked for the
/// current class, because admission may have checked the permission for another class.
pub(in crate::reconcile) async fn approver(
    ctx: &Context,
    deployment: &DynamicObject,
    class: &Class,
    requesters: &PartRequesters,
    digest: &str,
) -> Result<Option<String>, ReconcileError> {
    let mode = class.approval;
    if mode == Approval::None {
        return Ok(None);
    }
    let name = deployment.name_any();
    let present_terms = approval_terms(&deployment.data["spec"]);
    let has_default_terms = has_default_terms(&deployment.data["spec"]);
    let uid = deployment.metadata.uid.as_deref();
    let spec = |approval: &DynamicObject| {
        let spec = BundleApprovalSpec::deserialize(&approval.data["spec"]).ok()?;
        let target = &spec.bundle_deployment;
        let is_wanted = target.name == name
            && Some(target.uid.as_str()) == uid
            && spec.digest == digest
            && approval.metadata.deletion_timestamp.is_none();
        is_wanted.then_some(spec)
    };
    let failed = |error: kube::Error| {
        ReconcileError::api("list BundleApprovals", reason::INSTALL_FAILED, &error)
    };
    // Only names are kept, because the whole objects of all approvals could exceed the memory
    // limit.
    let mut names = Vec::new();
    ctx.for_each(&ctx.approvals, None, |approval| {
        if spec(&approval).is_some() {
            names.push(approval.name_any());
        }
    })
    .await
    .map_err(failed)?;
    let mut invalid = Vec::new();
    for approval in names {
        let approval = ctx.get(&ctx.approvals, &approval).await.map_err(failed)?;
        let Some(approval) = approval else {
            continue;
        };
        let Some(spec) = spec(&approval) else {
            continue;
        };
        let vouched = seal::confirmed_facts(ctx, &approval, Kind::BundleApproval);
        let terms = vouched
            .as_ref()
            .ok()
            .and_then(|vouched| vouched.approves.as_ref());
        let same_terms = terms == Some(&present_terms);
        // If the approval names a generation, its author reviewed the settings, because admission
        // compared this generation with the generation of the BundleDeployment.
        let is_read = has_default_terms || spec.bundle_deployment.generation.is_some();
        let by = match vouched.map(|vouched| vouched.parts.template.as_ref().clone()) {
            Err(why) => Err((reason::NOT_ADMITTED, why)),
            Ok(by) if mode == Approval::ByAnotherPerson && has_requested(requesters, &by) => Err((
                reason::SELF_APPROVAL,
                format!(
                    "{} requested the content or its settings, and the class requires approval by another person",
                    by.user
                ),
            )),
            Ok(by) if let Some(departed) = deleted_account(ctx, &by).await? => Err((
                reason::SUPERSEDED,
                format!("{departed}; it wrote this approval: approve again"),
            )),
            Ok(by) if !may_approve(ctx, class, &by).await? => Err((
                reason::NOT_ADMITTED,
                format!(
                    "{} has no permission to approve for class {}",
                    by.user, class.name
                ),
            )),
            Ok(_) if !same_terms => Err((
                reason::SUPERSEDED,
                format!(
                    "class, ServiceAccount, target namespace, createNamespace, config, collision, crdUpgrades, drift.ignore, deletion or rollout.replace of BundleDeployment {name} changed after this approval: approve again"
                ),
            )),
            // An earlier version of the program admitted approvals without a generation. For such
            // an approval it is unknown which settings its author reviewed.
            Ok(_) if !is_read => Err((
                reason::SUPERSEDED,
                format!(
                    "BundleDeployment {name} has settings besides class and template, and this approval does not name the generation that was reviewed: approve again with spec.bundleDeployment.generation"
                ),
            )),
            Ok(by) => Ok(by),
        };
        write_status(ctx, &approval, &by).await;
        match by {
            Ok(by) => return Ok(Some(by.user)),
            Err((_, why)) => invalid.push(format!("{}: {why}", approval.name_any())),
        }
    }
    Err(not_approved(deployment, digest, invalid))
}

/// Returns the error for content without a valid approval. `invalid` contains the invalid approvals
/// of this content, and the reason for each.
pub(in crate::reconcile) fn not_approved(
    deployment: &DynamicObject,
    digest: &str,
    mut invalid: Vec<String>,
) -> ReconcileError {
    let mut message = format!(
        "waiting for approval of {digest} for BundleDeployment {} (uid {}, generation {}): a user with verb approve on the class must create a BundleApproval with these values",
        deployment.name_any(),
        deployment.metadata.uid.as_deref().unwrap_or_default(),
        deployment.metadata.generation.unwrap_or_default()
    );
    if !invalid.is_empty() {
        invalid.sort();
        message = format!("{message}; invalid: {}", invalid.join("; "));
    }
    ReconcileError::new(
        codes::install::NOT_APPROVED,
        reason::INSTALL_FAILED,
        message,
        RetryPolicy::OnChange,
    )
}

/// Returns true if `by` requested a part of the spec of the BundleDeployment: the template or other
/// settings.
fn has_requested(requesters: &PartRequesters, by: &Requester) -> bool {
    let mut all = requesters.distinct_requesters().into_iter();
    all.any(|requester| requester.user == by.user)
}

/// Returns the reason why `by` can no longer approve, if `by` is a ServiceAccount that was deleted
/// or recreated. Returns `None` otherwise.
async fn deleted_account(
    ctx: &Context,
    by: &Requester,
) -> Result<Option<LostAccount>, ReconcileError> {
    account::account_loss(&ctx.own, by).await.map_err(|error| {
        ReconcileError::api(
            "read the ServiceAccount of the approver",
            reason::INSTALL_FAILED,
            &error,
        )
    })
}

/// Returns true if `by` has verb `approve` on the class. A RoleBinding in the namespace of the pod
/// is sufficient, as at admission.
async fn may_approve(ctx: &Context, class: &Class, by: &Requester) -> Result<bool, ReconcileError> {
    let question = AccessReview::resource(
        names::verb::APPROVE,
        names::GROUP,
        &ctx.classes.plural,
        Some(&ctx.shared.settings.namespace),
        Some(&class.name),
    );
    access::has_permission(&ctx.own, by, &question)
        .await
        .map_err(|error| {
            ReconcileError::api(
                "check the permission to approve",
                reason::INSTALL_FAILED,
                &error,
            )
        })
}

/// Writes the condition `Accepted` of a BundleApproval.
async fn write_status(
    ctx: &Context,
    approval: &DynamicObject,
    by: &Result<Requester, (&'static str, String)>,
) {
    let old: BundleApprovalStatus = status_of(approval);
    let generation = approval.metadata.generation.unwrap_or_default();
    let mut conditions = ConditionSet::new(&old.conditions, generation, condition_set::now());
    match by {
        Ok(by) => conditions.set(
            condition::ACCEPTED,
            ConditionStatus::True,
            reason::ACCEPTED,
            &format!("approved by {}", by.user),
        ),
        Err((found, why)) => {
            conditions.set(condition::ACCEPTED, ConditionStatus::False, found, why);
        }
    }
    let new = BundleApprovalStatus {
        observed_generation: Some(generation),
        conditions: conditions.into_api(),
        ..old.clone()
    };
    if let Err(error) = writer::write(&ctx.own, &ctx.approvals, approval, &old, &new).await {
        tracing::warn!(
            approval = approval.name_any(),
            error = crate::chain(&error),
            "cannot write the status of a BundleApproval"
        );
    }
}
