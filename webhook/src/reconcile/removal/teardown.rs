//! The end of a BundleDeployment: what it installed goes in the reverse order, or is let go; the finalizer goes last.
//! Not here: the single steps (removal::steps, removal::remove), whether the deletion counts (removal::deletion), or the Bundles, which the API server's garbage collection
//! takes with their owner.

use std::collections::BTreeSet;

use bundle_api::names::{self, condition};
use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::conditions::State;
use bundle_core::plan::consent::{ActingAccount, ConsentRule};
use bundle_core::plan::decision::DecidedObjects;
use bundle_core::plan::inventory::{self, Inventory};
use bundle_core::review::deployment::{CustomResources, Deletion};
use bundle_core::review::{CheckedDeploymentSpec, Class, Kind, Requester, Vouched};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use crate::cluster::ServiceAccount;
use crate::reconcile::ApiFailure;
use crate::reconcile::context::{ClassFound, Context};
use crate::reconcile::deployment::controller;
use crate::reconcile::deployment::decided;
use crate::reconcile::deployment::failures::Work;
use crate::reconcile::deployment::namespaces;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::reconcile::removal::deletion;
use crate::reconcile::removal::remove::Remover;
use crate::reconcile::removal::steps::Removal;
use crate::reconcile::rights::removal_rights::named_account;
use crate::reconcile::status::condition_set::{self, ConditionSet};
use crate::reconcile::status::seal;
use crate::reconcile::status::writer;

/// The reason of conditions while it goes on.
pub(in crate::reconcile) const REMOVING: &str = "Removing";
/// The reason of conditions while somebody has to do something about it.
pub(in crate::reconcile) const REFUSED: &str = "RemovalRefused";

/// Reconciles a BundleDeployment that is being deleted.
pub(in crate::reconcile) async fn reconcile(
    object: &DynamicObject,
    ctx: &Context,
) -> Result<Action, ApiFailure> {
    let name = object.name_any();
    // From here on, an object that goes is no drift.
    ctx.states.close(&name);
    ctx.watches.leave(&name);
    if !controller::has_finalizer(object) {
        return Ok(Action::await_change());
    }
    match remove(object, ctx).await {
        Ok(()) => {
            ctx.failures.reset(Work::Remove, object);
            let finalizers = object
                .finalizers()
                .iter()
                .filter(|name| *name != names::FINALIZER_INSTALLED)
                .cloned()
                .collect();
            crate::reconcile::set_finalizers(&ctx.own, &ctx.deployments, object, finalizers)
                .await?;
            // Last: while the object is there, a removal without it would be refused. What is left behind is swept.
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            if let Err(error) = ctx.inventories.remove(uid).await {
                tracing::warn!(
                    deployment = name,
                    error = crate::chain(&error),
                    "an inventory is left to the sweep"
                );
            }
            Ok(Action::await_change())
        }
        Err(error) => {
            tell(object, ctx, &error).await?;
            let wait = ctx.failures.next(Work::Remove, object, error.retry);
            Ok(wait.map_or_else(Action::await_change, Action::requeue))
        }
    }
}

async fn tell(
    object: &DynamicObject,
    ctx: &Context,
    error: &ReconcileError,
) -> Result<(), kube::Error> {
    let old = controller::status_of(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let mut conditions = ConditionSet::new(&old.conditions, generation, condition_set::now());
    let goes_on = error.reason == REMOVING;
    conditions.set(
        condition::PROGRESSING,
        if goes_on { State::True } else { State::False },
        error.reason,
        &error.message,
    );
    conditions.set(condition::READY, State::False, error.reason, &error.message);
    let mut new = old.clone();
    new.conditions = conditions.into_api();
    if writer::write(&ctx.own, &ctx.deployments, object, &old, &new).await? && !goes_on {
        ctx.deployment_events
            .warn(object, error.code, &error.message)
            .await;
    }
    Ok(())
}

/// The ServiceAccount that removes.
struct RemovingAccount {
    name: ServiceAccount,
    /// The rights that it lends.
    acting: ActingAccount,
}

/// The class, if it is there, can be read and is ours.
async fn class(object: &DynamicObject, ctx: &Context) -> Result<Option<Class>, ReconcileError> {
    let name = object.data["spec"]["provisionerClassName"]
        .as_str()
        .unwrap_or_default();
    let found = ctx.class(name).await;
    match found
        .map_err(|error| ReconcileError::api("read the ProvisionerClass", REMOVING, &error))?
    {
        ClassFound::Ours(class) => Ok(Some(*class)),
        _ => Ok(None),
    }
}

/// Who removes: whom the spec names, which is vouched for; else whoever installed, as it is recorded; before that, whoever would have.
async fn account(
    (object, ctx): (&DynamicObject, &Context),
    class: Option<&Class>,
    inventory: &Inventory,
    requesters: &[Requester],
) -> Result<Option<RemovingAccount>, ReconcileError> {
    let chosen = CheckedDeploymentSpec::parse(&object.data["spec"])
        .ok()
        .and_then(|spec| spec.service_account);
    if let Some(chosen) = chosen {
        return Ok(Some(RemovingAccount {
            acting: named_account(ctx, &chosen, requesters).await?,
            name: ServiceAccount {
                namespace: chosen.namespace,
                name: chosen.name,
            },
        }));
    }
    let of_class = class
        .and_then(|class| class.service_account.clone())
        .map(|of_class| ServiceAccount {
            namespace: of_class.namespace,
            name: of_class.name,
        });
    let record = inventory.record.as_ref();
    let Some(installed) = record.and_then(|record| record.installed.as_ref()) else {
        return Ok(of_class.map(|name| RemovingAccount {
            name,
            acting: ActingAccount::Granted,
        }));
    };
    let name = ServiceAccount::parse(&installed.account_namespace, &installed.account_name)
        .map_err(|error| {
            let text = format!("the inventory records no ServiceAccount: {error}");
            ReconcileError::new(
                codes::install::NO_ACCOUNT,
                REMOVING,
                text,
                RetryPolicy::OnChange,
            )
        })?;
    Ok(Some(RemovingAccount {
        acting: if of_class.as_ref() == Some(&name) {
            ActingAccount::Granted
        } else {
            ActingAccount::Former
        },
        name,
    }))
}

/// Whether anything may have been applied, as far as the object itself tells: by its status, or by what other tools are told beforehand. Asked only where the
/// inventory is lost; whoever writes the status decides no more than whether somebody is asked to look for leftovers.
fn may_have_installed(object: &DynamicObject) -> bool {
    let status = controller::status_of(object);
    let told = object
        .annotations()
        .get(names::ANNOTATION_APPLYSET_GROUP_KINDS);
    status.installed.is_some()
        || status.active_bundle.is_some()
        || told.is_some_and(|kinds| !kinds.is_empty())
}

async fn remove(object: &DynamicObject, ctx: &Context) -> Result<(), ReconcileError> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let unreadable = |error| ReconcileError::inventory("RemovalFailed", &error);
    let inventory = ctx.inventories.load(uid).await.map_err(unreadable)?;
    let deletion = CheckedDeploymentSpec::parse(&object.data["spec"])
        .ok()
        .map(|spec| spec.deletion);
    let orphan = deletion.as_ref().is_some_and(|deletion| deletion.orphan);
    let Some(inventory) = inventory else {
        // It is recorded before the first object is applied: without a record there is nothing, or somebody deleted it.
        if orphan || !may_have_installed(object) {
            return Ok(());
        }
        return Err(refused(
            codes::install::INVENTORY_LOST,
            format!(
                "the inventory of what was installed (ConfigMap inventory-{uid} in namespace {}) is gone, so it is not known which objects are to be removed: remove them by hand, and set spec.deletion.objects: Orphan to let this one go",
                ctx.shared.settings.state_namespace
            ),
        ));
    };
    let mut left = (*inventory).clone();
    forget_replaced_namespaces(ctx, &mut left).await;
    if left.is_empty() {
        return Ok(());
    }
    deletion::accept(object, ctx, &mut left).await?;
    // Before anything is removed: a gap that comes later does not count.
    let saved = ctx.inventories.save(uid, left.clone()).await;
    saved.map_err(unreadable)?;
    let vouched = seal::vouched(ctx, object, Kind::BundleDeployment)
        .map_err(|why| refused(codes::review::NOT_ADMITTED, why))?;
    let done = remove_objects(object, ctx, &mut left, deletion, &vouched).await;
    if done.is_err() {
        // What is gone need not be looked at again.
        ctx.inventories.save(uid, left).await.map_err(unreadable)?;
    }
    done
}

/// Objects went with their namespace, also where another one has its name now.
async fn forget_replaced_namespaces(ctx: &Context, left: &mut Inventory) {
    let names: BTreeSet<String> = left.namespaces().map(|(name, _)| name.to_owned()).collect();
    let names = names.iter().map(String::as_str).collect();
    let Ok(live) = namespaces::uids(&ctx.own, names).await else {
        // Then each object is asked for.
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
        left.forget(&key);
    }
}

async fn remove_objects(
    object: &DynamicObject,
    ctx: &Context,
    left: &mut Inventory,
    deletion: Option<Deletion>,
    vouched: &Vouched,
) -> Result<(), ReconcileError> {
    let orphan = deletion.as_ref().is_some_and(|deletion| deletion.orphan);
    let class = class(object, ctx).await?;
    let requesters: Vec<Requester> = vouched.parts.content().into_iter().cloned().collect();
    let account = account((object, ctx), class.as_ref(), left, &requesters).await?;
    let Some(account) = account else {
        if orphan {
            return Ok(());
        }
        return Err(refused(
            codes::install::NO_ACCOUNT,
            "the ProvisionerClass is gone and it is not recorded who installed: create the class again, or set spec.deletion.objects: Orphan to leave the objects behind".to_owned(),
        ));
    };
    let client = ctx
        .shared
        .client_as(&account.name)
        .map_err(|error| refused(codes::install::NO_ACCOUNT, crate::chain(&error)))?;
    let recorded = left.clone();
    let remover = Remover {
        apis: &ctx.apis,
        client: &client,
        account: &account.name,
        inventory: &recorded,
        reason: "RemovalFailed",
    };
    let keys: Vec<String> = recorded.objects().map(|(key, _)| key.to_owned()).collect();
    let decided = class.as_ref().map_or(DecidedObjects::None, |class| {
        decided::objects(&recorded, &decided::decider(class, object))
    });
    let rule = ConsentRule::new(class.as_ref(), account.acting, decided);
    if orphan && let Some(why) = rule.account_withdrawn() {
        tracing::warn!(
            deployment = object.name_any(),
            why,
            "objects are left behind with our labels"
        );
        return Ok(());
    }
    if orphan {
        let released = match remover.present(&keys).await {
            Ok(present) => remover.release(&present).await,
            Err(error) => Err(error),
        };
        return match released {
            // Whoever asked for the objects to be left behind is not kept waiting for labels that cannot be taken off.
            Err(error) if error.retry != RetryPolicy::Soon => {
                tracing::warn!(
                    deployment = object.name_any(),
                    why = error.message,
                    "objects are left behind with our labels"
                );
                Ok(())
            }
            other => other,
        };
    }
    let policy = deletion.map_or(CustomResources::Refuse, |deletion| {
        deletion.custom_resources
    });
    let present = remover.present(&keys).await?;
    let there: BTreeSet<&str> = present.iter().map(|found| found.key.as_str()).collect();
    for key in keys.iter().filter(|key| !there.contains(key.as_str())) {
        left.forget(key);
    }
    let removal = Removal {
        object,
        ctx,
        remover: &remover,
        policy,
        rule: &rule,
        requesters: &requesters,
        admit: &deletion::admit_command(object, ctx),
    };
    removal.run(left, present).await
}

pub(in crate::reconcile) fn refused(code: Code, message: String) -> ReconcileError {
    ReconcileError::new(code, REFUSED, message, RetryPolicy::Slowly)
}
