//! The reconcile of a BundleDeployment that is being deleted: deletes the installed objects in
//! reverse order or removes their owner labels. Removes the finalizer last.
//! `bundle_core::plan::removal::steps` orders the steps. The garbage collector of Kubernetes
//! deletes the Bundles.

use std::collections::BTreeSet;

use bundle_api::deployment::status::BundleDeploymentStatus;
use bundle_api::names;
use bundle_core::diagnostic::codes;
use bundle_core::plan::consent::{ActingAccount, ConsentRule};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::inventory::{self, Inventory};
use bundle_core::plan::removal::steps::{
    Account, CustomResources, ObservedRemoval, RecordedObjects, RemovalStep,
};
use bundle_core::plan::removal::{REMOVING, RemovalFailure, RemovingAccount, removing_account};
use bundle_core::plan::status;
use bundle_core::review::deployment::Deletion;
use bundle_core::review::{CheckedDeploymentSpec, Class, Kind, Requester};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::clients::cluster::ServiceAccount;
use crate::reconcile::ApiFailure;
use crate::reconcile::context::failures::Work;
use crate::reconcile::context::{ClassLookup, Context, class_name};
use crate::reconcile::deployment_state::has_finalizer;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::finalizers::FinalizerChange;
use crate::reconcile::inventory::{decision, namespaces};
use crate::reconcile::reader;
use crate::reconcile::removal::deletion;
use crate::reconcile::removal::remove::removal_weight;
use crate::reconcile::removal::steps::Removal;
use crate::reconcile::rights::removal_permissions::named_account;
use crate::reconcile::seal;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::{status_of, writer};

/// Reconciles a BundleDeployment that is being deleted.
pub(in crate::reconcile) async fn reconcile(
    object: &DynamicObject,
    ctx: &Context,
) -> Result<Action, ApiFailure> {
    let name = object.name_any();
    // Without a state, the deletion of an object does not count as drift.
    ctx.states.close(&name);
    ctx.watches.remove_user(&name);
    if !has_finalizer(object) {
        return Ok(Action::await_change());
    }
    match Teardown::new(object, ctx).run().await {
        Ok(()) => Ok(Action::await_change()),
        Err(TeardownError::Api(error)) => Err(error.into()),
        Err(TeardownError::Failed(error)) => {
            report(object, ctx, &error).await?;
            let wait = ctx.failures.record(Work::Remove, object, error.retry);
            Ok(wait.map_or_else(Action::await_change, Action::requeue))
        }
    }
}

async fn report(
    object: &DynamicObject,
    ctx: &Context,
    error: &ReconcileError,
) -> Result<(), kube::Error> {
    let old: BundleDeploymentStatus = status_of(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let mut conditions = ConditionSet::new(&old.conditions, generation, condition_set::now());
    conditions.apply_all(&status::removing(error.reason, &error.message));
    let mut new = old.clone();
    new.conditions = conditions.into_api();
    if writer::write(&ctx.own, &ctx.deployments, object, &old, &new).await?
        && error.reason != REMOVING
    {
        ctx.deployment_events
            .warn(object, error.code, &error.message)
            .await;
    }
    Ok(())
}

/// The reason why a removal could not be completed.
enum TeardownError {
    /// A condition reports the error.
    Failed(ReconcileError),
    /// A request to the API server failed, and no condition could report it.
    Api(kube::Error),
}

impl From<ReconcileError> for TeardownError {
    fn from(error: ReconcileError) -> Self {
        Self::Failed(error)
    }
}

impl From<RemovalFailure> for TeardownError {
    fn from(failure: RemovalFailure) -> Self {
        Self::Failed(failure.into())
    }
}

/// One reconcile of a BundleDeployment that is being deleted.
struct Teardown<'a> {
    object: &'a DynamicObject,
    ctx: &'a Context,
    uid: &'a str,
    /// The settings in `spec.deletion`. `None` if the spec is invalid.
    deletion: Option<Deletion>,
    /// The inventory without the records of objects that no longer exist. `None` if no inventory
    /// exists.
    left: Option<Inventory>,
    requesters: Vec<Requester>,
    removal: Option<Removal<'a>>,
}

impl<'a> Teardown<'a> {
    fn new(object: &'a DynamicObject, ctx: &'a Context) -> Self {
        let spec = CheckedDeploymentSpec::parse(&object.data["spec"]).ok();
        Self {
            object,
            ctx,
            uid: object.metadata.uid.as_deref().unwrap_or_default(),
            deletion: spec.map(|spec| spec.deletion),
            left: None,
            requesters: Vec::new(),
            removal: None,
        }
    }

    /// Executes the steps of the removal until no step remains or a step fails.
    async fn run(mut self) -> Result<(), TeardownError> {
        let loaded = self.ctx.inventories.load(self.uid).await;
        let loaded = loaded.map_err(|error| ReconcileError::inventory("RemovalFailed", &error))?;
        self.left = loaded.map(|inventory| (*inventory).clone());
        let mut observed = self.observed();
        loop {
            let Some(step) = observed.steps().first().copied() else {
                return Ok(());
            };
            let done = Box::pin(self.step(step, &mut observed)).await;
            if matches!(done, Err(TeardownError::Failed(_)))
                && observed.done.contains(&RemovalStep::ReadRequesters)
            {
                // Stores the inventory without the records of deleted objects. Before the step
                // `ReadRequesters`, it is unknown whether the deletion is accepted, so the
                // inventory is not stored.
                self.save().await?;
            }
            done?;
            observed.done.insert(step);
        }
    }

    /// Returns the facts that are known before the first step.
    fn observed(&self) -> ObservedRemoval {
        ObservedRemoval {
            has_finalizer: has_finalizer(self.object),
            is_orphan: self.deletion.is_some_and(|deletion| deletion.orphan),
            custom_resources: self.deletion.map_or(CustomResources::Refuse, |deletion| {
                deletion.custom_resources
            }),
            recorded: self.recorded(),
            account: None,
            definitions_in_use: None,
            done: BTreeSet::new(),
        }
    }

    fn recorded(&self) -> RecordedObjects {
        match &self.left {
            Some(left) if left.is_empty() => RecordedObjects::Empty,
            Some(_) => RecordedObjects::Some,
            // An installation stores the inventory before it applies the first object. If no
            // inventory exists, there are two possible reasons: no object was applied, or another
            // client deleted the inventory.
            None if may_have_installed(self.object) => RecordedObjects::Lost,
            None => RecordedObjects::None,
        }
    }

    async fn step(
        &mut self,
        step: RemovalStep,
        observed: &mut ObservedRemoval,
    ) -> Result<(), TeardownError> {
        let (object, ctx) = (self.object, self.ctx);
        match step {
            RemovalStep::ReportInventoryLost => {
                let namespace = &ctx.shared.settings.state_namespace;
                return Err(RemovalFailure::inventory_lost(self.uid, namespace).into());
            }
            RemovalStep::ForgetReplacedNamespaces => {
                if let Some(left) = &mut self.left {
                    forget_replaced_namespaces(ctx, left).await;
                }
                observed.recorded = self.recorded();
            }
            RemovalStep::CheckDeletion => {
                if let Some(left) = &mut self.left {
                    deletion::accept(object, ctx, left).await?;
                }
            }
            RemovalStep::RecordAcceptance => self.save().await?,
            RemovalStep::ReadRequesters => {
                let vouched = seal::confirmed_facts(ctx, object, Kind::BundleDeployment)
                    .map_err(|why| RemovalFailure::refused(codes::review::NOT_ADMITTED, why))?;
                self.requesters = vouched.parts.content().into_iter().cloned().collect();
            }
            RemovalStep::FindAccount => observed.account = Some(self.find_account().await?),
            RemovalStep::ReportNoAccount => return Err(RemovalFailure::no_account().into()),
            RemovalStep::RemoveFinalizer => {
                self.remove_finalizer().await.map_err(TeardownError::Api)?;
            }
            RemovalStep::RemoveInventory => self.remove_inventory().await,
            RemovalStep::FindObjects
            | RemovalStep::ReleaseObjects
            | RemovalStep::FindDefinitionsInUse
            | RemovalStep::ReportDefinitionsInUse
            | RemovalStep::ReleaseDefinitionsInUse
            | RemovalStep::DeleteObjects
            | RemovalStep::ReleaseNamespacesInUse
            | RemovalStep::DeleteNamespaces => {
                if let (Some(removal), Some(left)) = (&mut self.removal, &mut self.left) {
                    object_step(step, (removal, left), observed).await?;
                }
            }
        }
        Ok(())
    }

    async fn save(&self) -> Result<(), ReconcileError> {
        let Some(left) = &self.left else {
            return Ok(());
        };
        let saved = self.ctx.inventories.save(self.uid, left.clone()).await;
        saved.map_err(|error| ReconcileError::inventory("RemovalFailed", &error))?;
        Ok(())
    }

    /// Finds the ServiceAccount that deletes the objects, and checks that the requesters can still
    /// use it.
    async fn find_account(&mut self) -> Result<Account, TeardownError> {
        let (object, ctx) = (self.object, self.ctx);
        let Some(left) = &self.left else {
            return Ok(Account::None);
        };
        let class = class(object, ctx).await?;
        let found = account((object, ctx), class.as_ref(), left, &self.requesters).await?;
        let Some((account, acting)) = found else {
            return Ok(Account::None);
        };
        let client = ctx.shared.leader_client_as(&account).map_err(|error| {
            RemovalFailure::refused(codes::install::NO_ACCOUNT, crate::chain(&error))
        })?;
        let decided = class.as_ref().map_or(DecidedObjects::None, |class| {
            decision::objects(left, &decision::decider(class, object))
        });
        let rule = ConsentRule::new(class.as_ref(), acting, decided);
        let requester = self
            .requesters
            .first()
            .map(|requester| requester.user.as_str());
        let share = {
            let pool = &ctx.shared.budget.content;
            let weight = removal_weight(left.objects().count());
            // The reservation is limited to half of the pool, the limit of one requester, so that
            // every removal can reserve its memory.
            let weight = weight.min(pool.capacity() / 2);
            reader::memory(ctx, requester.unwrap_or_default(), weight, REMOVING).await?
        };
        let removal = self.removal.insert(Removal {
            object,
            ctx,
            account,
            client,
            rule,
            requesters: std::mem::take(&mut self.requesters),
            recorded: left.clone(),
            objects: Vec::new(),
            namespaces: Vec::new(),
            in_use: Vec::new(),
            _share: share,
        });
        let Some(why) = removal.rule.account_withdrawn() else {
            return Ok(Account::Usable);
        };
        if self.deletion.is_some_and(|deletion| deletion.orphan) {
            removal.warn_of_labels(why);
        }
        Ok(Account::Withdrawn)
    }

    async fn remove_finalizer(&self) -> Result<(), kube::Error> {
        let (object, ctx) = (self.object, self.ctx);
        ctx.failures.reset(Work::Remove, object);
        FinalizerChange::Remove(names::FINALIZER_INSTALLED)
            .apply(&ctx.own, &ctx.deployments, object)
            .await
    }

    /// Deletes the inventory. If the deletion fails, the periodic sweep deletes the inventory
    /// later.
    async fn remove_inventory(&self) {
        if let Err(error) = self.ctx.inventories.remove(self.uid).await {
            tracing::warn!(
                deployment = self.object.name_any(),
                error = crate::chain(&error),
                "cannot delete an inventory; the periodic sweep retries"
            );
        }
    }
}

/// Executes one of the steps that act as the ServiceAccount of this removal.
async fn object_step(
    step: RemovalStep,
    (removal, left): (&mut Removal<'_>, &mut Inventory),
    observed: &mut ObservedRemoval,
) -> Result<(), ReconcileError> {
    match step {
        RemovalStep::FindObjects => removal.find_objects(left).await,
        RemovalStep::ReleaseObjects => removal.release_objects().await,
        RemovalStep::FindDefinitionsInUse => {
            observed.definitions_in_use = Some(removal.find_definitions_in_use().await?);
            Ok(())
        }
        RemovalStep::ReportDefinitionsInUse => Err(removal.definitions_in_use().into()),
        RemovalStep::ReleaseDefinitionsInUse => removal.release_definitions_in_use(left).await,
        RemovalStep::DeleteObjects => removal.delete_objects(left).await,
        RemovalStep::ReleaseNamespacesInUse => removal.release_namespaces_in_use(left).await,
        RemovalStep::DeleteNamespaces => removal.delete_namespaces(left).await,
        _ => Ok(()),
    }
}

/// Returns the class of the BundleDeployment, if the class exists, is valid, and names a
/// provisioner that bundle-webhook implements.
async fn class(object: &DynamicObject, ctx: &Context) -> Result<Option<Class>, ReconcileError> {
    let found = ctx.class(class_name(object)).await;
    match found
        .map_err(|error| ReconcileError::api("read the ProvisionerClass", REMOVING, &error))?
    {
        ClassLookup::Managed(class) => Ok(Some(*class)),
        _ => Ok(None),
    }
}

/// Returns the ServiceAccount that deletes the objects, with the result of its permission check.
async fn account(
    (object, ctx): (&DynamicObject, &Context),
    class: Option<&Class>,
    inventory: &Inventory,
    requesters: &[Requester],
) -> Result<Option<(ServiceAccount, ActingAccount)>, ReconcileError> {
    let of_spec = CheckedDeploymentSpec::parse(&object.data["spec"])
        .ok()
        .and_then(|spec| spec.service_account);
    let of_class = class.and_then(|class| class.service_account.clone());
    let record = inventory.record.as_ref();
    let recorded = match record.and_then(|record| record.installed.as_ref()) {
        // The ServiceAccount in the spec has priority over the recorded ServiceAccount.
        Some(installed) if of_spec.is_none() => {
            let parsed =
                ServiceAccount::parse(&installed.account_namespace, &installed.account_name);
            Some(parsed.map_err(|error| {
                let text = format!("the inventory records an invalid ServiceAccount: {error}");
                let code = codes::install::NO_ACCOUNT;
                ReconcileError::new(code, REMOVING, text, RetryPolicy::OnChange)
            })?)
        }
        _ => None,
    };
    Ok(match removing_account(of_spec, recorded, of_class) {
        None => None,
        Some(RemovingAccount::OfSpec(account)) => {
            let acting = named_account(ctx, &account, requesters).await?;
            Some((account, acting))
        }
        Some(RemovingAccount::Known(account, acting)) => Some((account, acting)),
    })
}

/// Returns true if objects may have been applied, according to the status or the ApplySet
/// annotations. Used only if no inventory exists. Admission allows changes of the annotation only
/// to the pod, the requester, and users with verb `manage` (`bundle_core::review::deletion`). A
/// user who writes a wrong status can only cause a message, which asks to search for remaining
/// objects.
fn may_have_installed(object: &DynamicObject) -> bool {
    let status: BundleDeploymentStatus = status_of(object);
    let kinds = object
        .annotations()
        .get(names::ANNOTATION_APPLYSET_GROUP_KINDS);
    status.installed.is_some()
        || status.active_bundle.is_some()
        || kinds.is_some_and(|kinds| !kinds.is_empty())
}

/// Removes the records of objects whose namespace was deleted. A namespace with the recorded name
/// and another uid counts as deleted.
async fn forget_replaced_namespaces(ctx: &Context, left: &mut Inventory) {
    let names: BTreeSet<String> = left.namespaces().map(|(name, _)| name.to_owned()).collect();
    let names = names.iter().map(String::as_str).collect();
    let Ok(live) = namespaces::uids(&ctx.own, names).await else {
        // If the namespaces cannot be read, no record is removed here. Later, each object is read.
        return;
    };
    let is_gone = |name: &str| {
        left.namespace(name)
            .is_some_and(|uid| live.get(name).is_none_or(|live| live != uid))
    };
    let gone: Vec<String> = left
        .objects()
        .filter(|(key, _)| {
            inventory::parts(key).is_some_and(|(_, namespace, _)| namespace.is_some_and(is_gone))
        })
        .map(|(key, _)| key.to_owned())
        .collect();
    for key in gone {
        left.remove(&key);
    }
}
