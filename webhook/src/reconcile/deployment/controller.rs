//! The reconcile of a BundleDeployment: the Bundle of its template, then its content in place, then kept there; every condition said each time.
//! Not here: the steps (bundle::generated, deployment::steps, drift::keep, removal::teardown), or single objects (api::object).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bundle_api::deployment_status::BundleDeploymentStatus;
use bundle_api::names::{self, condition, reason};
use bundle_core::diagnostic::codes;
use bundle_core::plan::applyset;
use bundle_core::plan::conditions::State;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::steps::{Outcome, UpkeepStep};
use bundle_core::review::{CheckedDeploymentSpec, Class, Kind, PartRequesters, Requester};
use futures::FutureExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use kube::{Client, ResourceExt as _};

use crate::budget::Share;
use crate::cluster::ServiceAccount;
use crate::reconcile::ApiFailure;
use crate::reconcile::bundle::generated::{self, GeneratedBundle};
use crate::reconcile::content::scalers::Scalers;
use crate::reconcile::context::{ClassFound, Context};
use crate::reconcile::deployment::failures::Work;
use crate::reconcile::deployment::steps::InstallRequest;
use crate::reconcile::drift::keep;
use crate::reconcile::drift::restored::{Restored, Scope};
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::removal::teardown;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::seal;
use crate::reconcile::status::unreadable;
use crate::reconcile::status::writer;

/// How many objects and warnings a status lists.
pub(in crate::reconcile) const LISTED: usize = 20;
/// How soon health is looked at again where it could not be read. Everything else is told by watches.
pub(in crate::reconcile) const HEALTH_AGAIN: Duration = Duration::from_secs(5);

/// The message of conditions that nothing is known for.
const NOT_LOOKED_AT: &str = "not looked at";

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
    conditions.set(condition::PROGRESSING, State::False, found, message);
    conditions.set(condition::READY, State::False, found, message);
    for kind in [condition::HEALTHY, condition::DRIFTED] {
        conditions.set(kind, State::Unknown, found, NOT_LOOKED_AT);
    }
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
    let found = error.reason;
    conditions.set(
        condition::HAS_VALID_BUNDLE,
        State::Unknown,
        found,
        &error.message,
    );
    if old.installed.is_none() {
        conditions.set(condition::INSTALLED, State::False, found, &error.message);
    }
    for kind in [condition::AUTHORIZED, condition::APPROVED] {
        conditions.set_if_new(kind, State::Unknown, found, NOT_LOOKED_AT);
    }
    for kind in [condition::HEALTHY, condition::DRIFTED] {
        conditions.set(kind, State::Unknown, found, NOT_LOOKED_AT);
    }
    conditions.set(condition::PROGRESSING, State::False, found, &error.message);
    conditions.set(condition::READY, State::False, found, &error.message);
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

/// One reconcile.
pub(in crate::reconcile) struct DeploymentReconcile<'a> {
    pub(in crate::reconcile) object: &'a DynamicObject,
    pub(in crate::reconcile) ctx: &'a Arc<Context>,
    pub(in crate::reconcile) class: &'a Class,
    pub(in crate::reconcile) spec: CheckedDeploymentSpec,
    /// Who asked for the template, and so for the content.
    pub(in crate::reconcile) requester: Requester,
    /// Who asked for each part of the spec.
    pub(in crate::reconcile) parts: PartRequesters,
    pub(in crate::reconcile) name: String,
    pub(in crate::reconcile) applyset: String,
    /// As they are after our own writes.
    pub(in crate::reconcile) annotations: BTreeMap<String, String>,
    /// What belongs to the deployment, as it is recorded.
    pub(in crate::reconcile) inventory: Arc<Inventory>,
    pub(in crate::reconcile) conditions: ConditionSet,
    pub(in crate::reconcile) old: BundleDeploymentStatus,
    pub(in crate::reconcile) status: BundleDeploymentStatus,
    pub(in crate::reconcile) warnings: BTreeSet<String>,
    pub(in crate::reconcile) approved_by: Option<String>,
    pub(in crate::reconcile) restored: Vec<Restored>,
    /// True if objects were restored that were due.
    pub(in crate::reconcile) restores_tried: bool,
    placed: bool,
    /// What the objects of the content take of the memory.
    pub(in crate::reconcile) memory: Option<Share>,
    /// Replicas that were left to autoscalers.
    pub(in crate::reconcile) scalers: Arc<Scalers>,
    /// The key of the target namespace, if it is among the objects that were prepared last because it is created with them.
    pub(in crate::reconcile) created_namespace: Option<String>,
}

impl DeploymentReconcile<'_> {
    /// The reason for a failure to install.
    pub(in crate::reconcile) fn install_reason(&self) -> &'static str {
        if self.status.active_bundle.is_none() {
            reason::INSTALL_FAILED
        } else {
            reason::UPGRADE_FAILED
        }
    }

    fn account(&self) -> Result<ServiceAccount, ReconcileError> {
        let chosen = self
            .spec
            .service_account
            .as_ref()
            .or(self.class.service_account.as_ref());
        let Some(chosen) = chosen else {
            return Err(ReconcileError::new(
                codes::install::NO_ACCOUNT,
                reason::ERROR_GETTING_CLIENT,
                format!(
                    "neither spec.serviceAccount nor class {} names a ServiceAccount to install as",
                    self.class.name
                ),
                RetryPolicy::OnChange,
            ));
        };
        Ok(ServiceAccount {
            namespace: chosen.namespace.clone(),
            name: chosen.name.clone(),
        })
    }

    fn client(&self, account: &ServiceAccount) -> Result<Client, ReconcileError> {
        self.ctx.shared.client_as(account).map_err(|error| {
            ReconcileError::new(
                codes::install::NO_ACCOUNT,
                reason::ERROR_GETTING_CLIENT,
                crate::chain(&error),
                RetryPolicy::OnChange,
            )
        })
    }

    async fn run(&mut self) -> Result<Option<Duration>, ReconcileError> {
        crate::reconcile::context::is_built(self.class)?;
        self.load_inventory().await?;
        let template = self.spec.template.clone();
        let generated =
            generated::of_template(self.ctx, self.object, &template, &self.core_revisions())
                .await
                .inspect_err(|error| {
                    self.conditions.set(
                        condition::HAS_VALID_BUNDLE,
                        State::Unknown,
                        error.reason,
                        &error.message,
                    );
                })?;
        self.remember_seals(&generated).await?;
        let account = self.account()?;
        let client = self.client(&account)?;
        let unpacked = self.set_bundle_condition(&generated);
        let request = InstallRequest {
            generated: &generated,
            account: &account,
            client: &client,
            reason: self.install_reason(),
        };
        let result = self.place(&request, unpacked).await;
        self.placed = matches!(result, Ok(true));
        if result.is_err() {
            // What was cached may be the cause.
            self.ctx.apis.forget_custom().await;
        }
        let key = self.content_key(&request);
        let applied = self.ctx.states.applied_partly(&self.name, &key);
        self.show_upgrade(&generated);
        let outcome = Outcome {
            is_in_place: unpacked && self.ctx.states.content(&self.name) == Some(key),
            is_partly_applied: applied.is_some(),
            has_changed: self.placed,
        };
        let kept = self
            .upkeep(&request, outcome, applied.unwrap_or_default())
            .await;
        if let (Err(_), Err(error)) = (&result, &kept) {
            // The error of the new content is reported, and would hide that the installed content lacks rights.
            self.set_rights_condition(error);
        }
        result?;
        let wait = kept?;
        self.set_installed_condition(&generated, outcome.is_in_place);
        Ok(wait)
    }

    /// Does the steps that follow an installation. Returns when to look again.
    async fn upkeep(
        &mut self,
        request: &InstallRequest<'_>,
        outcome: Outcome,
        applied: BTreeSet<String>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut kept = Ok(None);
        for step in outcome.upkeep() {
            match step {
                UpkeepStep::TellApproval if outcome.is_in_place => {
                    let installed =
                        self.status.active_bundle.as_deref() == Some(&request.generated.name);
                    self.approve(request, !installed).await.ok();
                }
                UpkeepStep::TellApproval => {
                    let is_known = request.generated.content.is_some();
                    self.show_approval(request, is_known).await;
                }
                UpkeepStep::Keep => kept = Box::pin(self.keep(request)).await,
                UpkeepStep::KeepPartly => {
                    kept = Box::pin(self.keep_partly(request, &applied)).await;
                }
                UpkeepStep::KeepFormer => {
                    let former = self.keep_active(request.account, request.client);
                    kept = Box::pin(former).await;
                }
                UpkeepStep::CheckRights => {
                    if let Ok(wait) = &mut kept {
                        match self.rights_cycle(request).await {
                            Ok(next) => *wait = Some(wait.map_or(next, |wait| wait.min(next))),
                            Err(error) => kept = Err(error),
                        }
                    }
                }
                UpkeepStep::DeleteOldBundles => {
                    self.clear(request.generated, outcome.is_in_place).await;
                }
            }
        }
        kept
    }

    /// Deletes Bundles that nobody needs any more.
    async fn clear(&self, generated: &GeneratedBundle, in_place: bool) {
        let active = self.status.active_bundle.as_deref();
        let cleared = generated::clear(
            self.ctx,
            self.object,
            &generated.name,
            active,
            &self.core_revisions(),
            in_place && active == Some(&generated.name),
        )
        .await;
        if let Err(error) = cleared {
            tracing::warn!(
                deployment = self.name,
                error = crate::chain(&error),
                "old Bundles cannot be cleared away yet"
            );
        }
    }

    /// Keeps content that is in place: heals or reports drift, and looks at health.
    pub(in crate::reconcile) async fn keep(
        &mut self,
        request: &InstallRequest<'_>,
    ) -> Result<Option<Duration>, ReconcileError> {
        let mut refused = None;
        self.expire_drifted_jobs(request).await?;
        let mut wait = match self.restore(request, Scope::All).await {
            Err(error) if error.reason == reason::RIGHTS_WITHDRAWN => {
                refused = Some(error);
                None
            }
            restored => restored?,
        };
        let name = self.name.clone();
        if keep::look(self.ctx, request.client, &name).await {
            wait = Some(wait.unwrap_or(HEALTH_AGAIN).min(HEALTH_AGAIN));
        }
        refused.map_or(Ok(wait), Err)
    }

    /// The conditions that follow from all others, the one status write, and what is told besides.
    async fn finish(
        mut self,
        result: Result<Option<Duration>, ReconcileError>,
    ) -> Result<Action, ApiFailure> {
        let (wait, error) = match result {
            Ok(wait) => {
                self.ctx.failures.reset(Work::Install, self.object);
                (wait, None)
            }
            Err(error) => {
                self.set_error_condition(&error);
                self.set_rights_condition(&error);
                let failures = &self.ctx.failures;
                let wait = failures.next(Work::Install, self.object, error.retry);
                (wait, Some(error))
            }
        };
        let wait = self.with_next_restore(wait);
        self.warnings.extend(self.scalers.warnings());
        for kind in [condition::AUTHORIZED, condition::APPROVED] {
            self.conditions.set_if_new(
                kind,
                State::Unknown,
                "NotAsked",
                "the content has not been looked at yet",
            );
        }
        self.conditions.set_if_new(
            condition::HAS_VALID_BUNDLE,
            State::Unknown,
            reason::UNPACK_PENDING,
            "not looked at yet",
        );
        self.set_object_conditions(error.as_ref());
        let Self {
            object,
            ctx,
            conditions,
            old,
            mut status,
            warnings,
            restored,
            placed,
            ..
        } = self;
        status.conditions = conditions.into_api();
        if placed || !warnings.is_empty() || error.is_none() && status.warnings.is_empty() {
            status.warnings = merged(&status.warnings, warnings, placed);
        }
        let written = writer::write(&ctx.own, &ctx.deployments, object, &old, &status).await?;
        let events = &ctx.deployment_events;
        match &error {
            Some(error) if written && !is_told(&old, error) => {
                events.warn(object, error.code, &error.message).await;
            }
            None if placed => {
                let bundle = status.active_bundle.as_deref().unwrap_or_default();
                let note = format!("Instantiated bundle {bundle} successfully");
                events
                    .note(object, reason::INSTALLATION_SUCCEEDED, &note)
                    .await;
            }
            _ => {}
        }
        if !restored.is_empty() {
            let note = bundle_core::plan::conditions::some_of(&restored, LISTED);
            tracing::info!(deployment = object.name_any(), objects = note, "restored");
            events.restored(object, &restored).await;
        }
        Ok(wait.map_or_else(Action::await_change, Action::requeue))
    }
}

/// Whether the conditions said before that rights were withdrawn, in the same words: that is told by one Event.
fn is_told(old: &BundleDeploymentStatus, error: &ReconcileError) -> bool {
    error.code == codes::install::RIGHTS_WITHDRAWN
        && old.conditions.iter().any(|condition| {
            condition.type_ == condition::AUTHORIZED
                && condition.reason == reason::RIGHTS_WITHDRAWN
                && condition.message == error.message
        })
}

/// New warnings in the place of old ones; those of an earlier apply stay until the next.
fn merged(old: &[String], new: BTreeSet<String>, placed: bool) -> Vec<String> {
    let mut all = new;
    if !placed {
        all.extend(old.iter().cloned());
    }
    all.into_iter().take(LISTED).collect()
}
