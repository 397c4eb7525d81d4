//! The start of each BundleDeployment reconcile: selects admitted BundleDeployments with a class
//! whose provisioner bundle-webhook implements. `seal::sealed` limits the concurrent reconciles of
//! each requester.

use std::sync::{Arc, OnceLock};

use bundle_api::deployment::status::BundleDeploymentStatus;
use bundle_api::names::{self, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::applyset;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::status::{self as plan, DeploymentFacts};
use bundle_core::review::{CheckedDeploymentSpec, Kind};
use bundle_core::serving_certificate::CertificatePeriod;
use futures::FutureExt as _;
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::reconcile::ApiFailure;
use crate::reconcile::context::{ClassLookup, Context, class_name};
use crate::reconcile::deployment_state::{DeploymentReconcile, RequestedDeployment, has_finalizer};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::finalizers::FinalizerChange;
use crate::reconcile::removal::teardown;
use crate::reconcile::seal;
use crate::reconcile::seal::sealed::SealedKind;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::{status_of, writer};
use crate::retry::{self, delays};
use crate::telemetry::spans;

/// Reconciles one BundleDeployment.
pub(in crate::reconcile) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ApiFailure> {
    let deployments = SealedKind {
        kind: Kind::BundleDeployment,
        resource: &ctx.deployments,
        events: &ctx.deployment_events,
        slots: &ctx.slots,
        seals_deleted: true,
        on_end: |_, _| {},
    };
    deployments
        .reconcile(&object, &ctx, |object, ctx| {
            reconcile_object(object, ctx).boxed()
        })
        .await
}

async fn reconcile_object(
    object: &DynamicObject,
    ctx: &Arc<Context>,
) -> Result<Action, ApiFailure> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    // Only a reconcile without an error adds the BundleDeployment to a group again.
    ctx.rights_schedule.leave(uid);
    if object.metadata.deletion_timestamp.is_some() {
        return teardown::reconcile(object, ctx).await;
    }
    let class_name = class_name(object);
    // Without recorded objects, an installation is the only write of objects.
    let class = if ctx.inventories.may_record_objects(uid) {
        ctx.class(class_name).await?
    } else {
        ctx.recent_class(class_name).await?
    };
    let class = match class {
        ClassLookup::Managed(class) => class,
        ClassLookup::Unmanaged => return Ok(Action::await_change()),
        ClassLookup::NotFound if !has_finalizer(object) => return Ok(Action::await_change()),
        ClassLookup::NotFound => {
            let message = class_gone(class_name);
            return report_class_error(object, ctx, "ClassGone", &message).await;
        }
        ClassLookup::Invalid(why) => {
            return report_class_error(object, ctx, "ClassUnreadable", &why).await;
        }
    };
    let old: BundleDeploymentStatus = status_of(object);
    let conditions = ConditionSet::new(
        &old.conditions,
        object.metadata.generation.unwrap_or_default(),
        condition_set::now(),
    );
    let checked = seal::confirmed_facts(ctx, object, Kind::BundleDeployment)
        .map_err(|message| {
            ReconcileError::new(
                codes::review::NOT_ADMITTED,
                reason::NOT_ADMITTED,
                message,
                RetryPolicy::OnChange,
            )
        })
        .and_then(|vouched| {
            CheckedDeploymentSpec::parse(&object.data["spec"])
                .map(|spec| (vouched, spec))
                .map_err(|findings| {
                    ReconcileError::findings(
                        reason::BUNDLE_LOAD_FAILED,
                        &findings,
                        RetryPolicy::OnChange,
                    )
                })
        });
    let (vouched, spec) = match checked {
        Ok(checked) => checked,
        Err(error) => return not_admitted(object, ctx, old, conditions, &error).await,
    };
    if !has_finalizer(object) {
        FinalizerChange::Add(names::FINALIZER_INSTALLED)
            .apply(&ctx.own, &ctx.deployments, object)
            .await?;
    }
    let name = object.name_any();
    let now = u64::try_from(Timestamp::now().as_second()).unwrap_or_default();
    let (replacement, installed) = (OnceLock::new(), OnceLock::new());
    let mut reconcile = DeploymentReconcile {
        object,
        ctx,
        class: &class,
        requested: RequestedDeployment {
            object,
            spec: spec.clone(),
            replacement: &replacement,
            installed: &installed,
            content: None,
            awaited: None,
            event: None,
        },
        spec,
        requester: vouched.parts.template.as_ref().clone(),
        warnings: seal::owner_warning(object, &vouched).into_iter().collect(),
        parts: vouched.parts,
        is_rollback: false,
        departed_requesters: Vec::new(),
        applyset: applyset::id(&name, "", crate::reconcile::DEPLOYMENT, names::GROUP),
        applyset_label: object.labels().get(names::LABEL_APPLYSET_ID).cloned(),
        annotations: object.annotations().clone(),
        inventory: Arc::new(Inventory::new(&name)),
        name,
        conditions,
        status: BundleDeploymentStatus {
            observed_generation: object.metadata.generation,
            ..old.clone()
        },
        old,
        facts: DeploymentFacts::default(),
        approved_by: None,
        restored: Vec::new(),
        restores_tried: false,
        has_installed: false,
        applied_policies: None,
        scaled_objects: Arc::default(),
        created_namespace: None,
        package_rules: None,
        certificate_period: CertificatePeriod::at(now, uid),
        permission_check: None,
    };
    ctx.states.begin_reconcile(&reconcile.name);
    let result = Box::pin(reconcile.run()).await;
    ctx.states.end_reconcile(&reconcile.name);
    reconcile.finish(result).await
}

/// Returns the message about a deleted ProvisionerClass.
pub(in crate::reconcile) fn class_gone(class: &str) -> String {
    format!(
        "ProvisionerClass {class} does not exist: installed objects stay unchanged until the class is created again"
    )
}

/// Reports the reason why the class cannot be used, in the conditions and as an Event. Installed
/// objects stay unchanged.
pub(in crate::reconcile) async fn report_class_error(
    object: &DynamicObject,
    ctx: &Context,
    found: &str,
    message: &str,
) -> Result<Action, ApiFailure> {
    let old: BundleDeploymentStatus = status_of(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let mut conditions = ConditionSet::new(&old.conditions, generation, condition_set::now());
    conditions.apply_all(&plan::class_missing(found, message));
    let mut status = old.clone();
    status.conditions = conditions.into_api();
    if writer::write(&ctx.own, &ctx.deployments, object, &old, &status).await? {
        ctx.deployment_events
            .warn(object, codes::install::CLASS_GONE, message)
            .await;
    }
    Ok(Action::requeue(retry::jittered(delays::MISSING_CLASS)))
}

/// Reports an object that was written while admission was off, or that has an invalid spec.
/// Installed objects stay unchanged.
async fn not_admitted(
    object: &DynamicObject,
    ctx: &Context,
    old: BundleDeploymentStatus,
    mut conditions: ConditionSet,
    error: &ReconcileError,
) -> Result<Action, ApiFailure> {
    spans::code(error.code.id);
    spans::outcome("failed");
    let is_installed = old.installed.is_some();
    conditions.apply_all(&plan::not_admitted(
        error.reason,
        &error.message,
        is_installed,
    ));
    let status = BundleDeploymentStatus {
        observed_generation: object.metadata.generation,
        conditions: conditions.into_api(),
        ..old.clone()
    };
    if writer::write(&ctx.own, &ctx.deployments, object, &old, &status).await? {
        ctx.deployment_events
            .warn(object, error.code, &error.message)
            .await;
    }
    Ok(Action::await_change())
}
