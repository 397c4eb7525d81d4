//! The entry of reconciles of BundleDeployments: which ones are ours and admitted, each with a slot of its requester.
//! Not here: the reconcile itself (deployment::controller), or the end of a BundleDeployment (removal::teardown).

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_api::deployment_status::BundleDeploymentStatus;
use bundle_api::names::{self, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::applyset;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::status::{self as plan, DeploymentFacts};
use bundle_core::review::{CheckedDeploymentSpec, Kind};
use futures::FutureExt as _;
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::reconcile::ApiFailure;
use crate::reconcile::context::{ClassFound, Context};
use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::removal::teardown;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::seal;
use crate::reconcile::status::unreadable;
use crate::reconcile::status::writer;
use crate::spans;

/// Reconciles one BundleDeployment.
pub(in crate::reconcile) async fn reconcile(
    object: Arc<DynamicObject>,
    ctx: Arc<Context>,
) -> Result<Action, ApiFailure> {
    let begun = Instant::now();
    let result = in_turn(&object, &ctx).await;
    ctx.shared.metrics.reconcile(
        crate::reconcile::DEPLOYMENT,
        result.is_ok(),
        begun.elapsed(),
    );
    result
}

/// Seals the object without delay, then waits for a slot of its requester and reconciles it.
async fn in_turn(woken: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    let (now, requester) = match sealed(woken, ctx).await? {
        ControlFlow::Continue(found) => found,
        ControlFlow::Break(action) => return Ok(action),
    };
    spans::requester(&requester);
    let mut now = Some(now);
    let mut slot = std::pin::pin!(ctx.slots.of(&requester));
    let at_once = (&mut slot).now_or_never();
    let slot = if let Some(slot) = at_once {
        slot
    } else {
        // It would take memory as long as it waits, and be old afterwards.
        now = None;
        slot.await
    };
    let now = match now {
        Some(now) => now,
        None => match sealed(woken, ctx).await? {
            ControlFlow::Continue((now, _)) => now,
            ControlFlow::Break(action) => return Ok(action),
        },
    };
    // On the heap: it holds a whole conversation with a registry.
    let result = Box::pin(once(&now, ctx)).await;
    drop(slot);
    result
}

/// Reads the object and makes sure that it is sealed: nothing is done with a generation that is not. What woke us may be older than our own last write, and a
/// status made from that would undo it. Returns the object with the requester whose slots it takes; or when to look again, if it is gone or cannot be read, or
/// its seal has just been written and wakes us.
async fn sealed(
    woken: &DynamicObject,
    ctx: &Arc<Context>,
) -> Result<ControlFlow<Action, (DynamicObject, String)>, ApiFailure> {
    // Not held while anything is waited for but the API server.
    let _read = ctx.slots.read().await;
    let object = match ctx.get(&ctx.deployments, &woken.name_any()).await {
        Ok(Some(object)) => object,
        Ok(None) => return Ok(ControlFlow::Break(Action::await_change())),
        Err(error) if unreadable::is_too_large(&error) => {
            let (resource, events) = (&ctx.deployments, &ctx.deployment_events);
            let reported = ctx.unreadable.report(&ctx.own, resource, events, woken);
            return Ok(ControlFlow::Break(reported.await));
        }
        Err(error) => return Err(error.into()),
    };
    ctx.unreadable.remove(&object);
    if seal::ensure(ctx, &ctx.deployments, &object, Kind::BundleDeployment).await? {
        return Ok(ControlFlow::Break(Action::await_change()));
    }
    let vouched = seal::vouched(ctx, &object, Kind::BundleDeployment);
    let requester = vouched.map_or_else(|_| String::new(), |vouched| vouched.parts.template.user);
    Ok(ControlFlow::Continue((object, requester)))
}

async fn once(object: &DynamicObject, ctx: &Arc<Context>) -> Result<Action, ApiFailure> {
    if object.metadata.deletion_timestamp.is_some() {
        return teardown::reconcile(object, ctx).await;
    }
    let class_name = object.data["spec"]["provisionerClassName"]
        .as_str()
        .unwrap_or_default();
    let class = match ctx.class(class_name).await? {
        ClassFound::Ours(class) => class,
        ClassFound::Foreign => return Ok(Action::await_change()),
        ClassFound::Gone if !has_finalizer(object) => return Ok(Action::await_change()),
        ClassFound::Gone => {
            let message = format!(
                "ProvisionerClass {class_name} is gone: what is installed stays, and nothing is changed until it is there again"
            );
            return stuck(object, ctx, "ClassGone", &message).await;
        }
        ClassFound::Unreadable(why) => {
            return stuck(object, ctx, "ClassUnreadable", &why).await;
        }
    };
    let old = status_of(object);
    let conditions = ConditionSet::new(
        &old.conditions,
        object.metadata.generation.unwrap_or_default(),
        condition_set::now(),
    );
    let checked = seal::vouched(ctx, object, Kind::BundleDeployment)
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
        let mut finalizers = object.finalizers().to_vec();
        finalizers.push(names::FINALIZER_INSTALLED.to_owned());
        crate::reconcile::set_finalizers(&ctx.own, &ctx.deployments, object, finalizers).await?;
    }
    let name = object.name_any();
    let mut reconcile = DeploymentReconcile {
        object,
        ctx,
        class: &class,
        spec,
        requester: vouched.parts.template.clone(),
        warnings: seal::owner_warning(object, &vouched).into_iter().collect(),
        parts: vouched.parts,
        applyset: applyset::id(&name, "", crate::reconcile::DEPLOYMENT, names::GROUP),
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
        placed: false,
        memory: None,
        scalers: Arc::default(),
        created_namespace: None,
    };
    reconcile.warn_of_unused();
    ctx.states.begin_reconcile(&reconcile.name);
    let result = Box::pin(reconcile.run()).await;
    ctx.states.end_reconcile(&reconcile.name);
    reconcile.finish(result).await
}

pub(in crate::reconcile) fn status_of(object: &DynamicObject) -> BundleDeploymentStatus {
    serde_json::from_value(object.data["status"].clone()).unwrap_or_default()
}

pub(in crate::reconcile) fn has_finalizer(object: &DynamicObject) -> bool {
    object
        .finalizers()
        .iter()
        .any(|name| name == names::FINALIZER_INSTALLED)
}

/// Says why nothing can be done, and leaves everything as it is.
pub(in crate::reconcile) async fn stuck(
    object: &DynamicObject,
    ctx: &Context,
    found: &str,
    message: &str,
) -> Result<Action, ApiFailure> {
    let old = status_of(object);
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
    Ok(Action::requeue(crate::reconcile::spread(
        Duration::from_secs(30),
    )))
}

/// Reports an object that was written while admission was off, or cannot be read, and does nothing with it.
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
