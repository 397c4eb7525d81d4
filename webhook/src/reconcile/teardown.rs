//! The end of a BundleDeployment: what it installed goes in the reverse order, or is let go; the finalizer goes last.
//! Not here: the single steps (remove), or the Bundles, which the API server's garbage collection takes with their owner.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bundle_api::names::{self, condition};
use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::conditions::State;
use bundle_core::plan::inventory::{self, Inventory};
use bundle_core::review::deployment::{CustomResources, Deletion};
use bundle_core::review::{CheckedDeploymentSpec, Kind};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use super::remove::{Present, Remover, name_some, next_step};
use super::room::{ClassFound, Room};
use super::said::{self, Said};
use super::trouble::{Retry, Trouble};
use super::{ReconcileError, deployment, namespaces, status};
use crate::cluster::ServiceAccount;

/// How long one reconcile waits for objects to go, before it says which ones it waits for.
const WAIT: Duration = Duration::from_secs(5);
/// The reason of conditions while it goes on.
const REMOVING: &str = "Removing";

/// Reconciles a BundleDeployment that is being deleted.
pub(super) async fn reconcile(
    object: &DynamicObject,
    room: &Room,
) -> Result<Action, ReconcileError> {
    let name = object.name_any();
    // From here on, an object that goes is no drift.
    room.books.close(&name);
    room.watches.leave(&name);
    if !deployment::has_finalizer(object) {
        return Ok(Action::await_change());
    }
    let key = format!("{}/{name}", super::DEPLOYMENT);
    match remove(object, room).await {
        Ok(()) => {
            room.went_well(&key);
            let finalizers = object
                .finalizers()
                .iter()
                .filter(|name| *name != names::FINALIZER_INSTALLED)
                .cloned()
                .collect();
            super::set_finalizers(&room.own, &room.deployments, object, finalizers).await?;
            // Last: while the object is there, a removal without it would be refused. What is left behind is swept.
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            if let Err(error) = room.inventories.remove(uid).await {
                tracing::warn!(
                    deployment = name,
                    error = crate::chain(&error),
                    "an inventory is left to the sweep"
                );
            }
            Ok(Action::await_change())
        }
        Err(trouble) => {
            tell(object, room, &trouble).await?;
            let wait = room.again(&key, trouble.retry);
            Ok(wait.map_or_else(Action::await_change, Action::requeue))
        }
    }
}

async fn tell(object: &DynamicObject, room: &Room, trouble: &Trouble) -> Result<(), kube::Error> {
    let old = deployment::status_of(object);
    let generation = object.metadata.generation.unwrap_or_default();
    let mut said = Said::new(&old.conditions, generation, said::now());
    let goes_on = trouble.reason == REMOVING;
    said.set(
        condition::PROGRESSING,
        if goes_on { State::True } else { State::False },
        trouble.reason,
        &trouble.message,
    );
    said.set(
        condition::READY,
        State::False,
        trouble.reason,
        &trouble.message,
    );
    let mut new = old.clone();
    new.conditions = said.into_api();
    if status::write(&room.own, &room.deployments, object, &old, &new).await? && !goes_on {
        room.deployment_teller
            .warn(object, trouble.code, &trouble.message)
            .await;
    }
    Ok(())
}

/// Who removes: whoever installed, as the status has it; before that, whoever would have.
async fn account(object: &DynamicObject, room: &Room) -> Result<Option<ServiceAccount>, Trouble> {
    let spec = &object.data["spec"];
    let stamped = super::seal::vouched(room, object, Kind::BundleDeployment).is_ok();
    let chosen = CheckedDeploymentSpec::parse(spec)
        .ok()
        .filter(|_| stamped)
        .and_then(|spec| spec.service_account);
    if let Some(chosen) = chosen {
        return Ok(Some(ServiceAccount {
            namespace: chosen.namespace,
            name: chosen.name,
        }));
    }
    if let Some(installed) = deployment::status_of(object)
        .installed
        .and_then(|installed| installed.installed_as)
    {
        return ServiceAccount::parse(&installed.namespace, &installed.name)
            .map(Some)
            .map_err(|error| {
                let text = format!("status.installed.installedAs is no ServiceAccount: {error}");
                Trouble::new(codes::install::NO_ACCOUNT, REMOVING, text, Retry::OnChange)
            });
    }
    let class = spec["provisionerClassName"].as_str().unwrap_or_default();
    let found = room
        .class(class)
        .await
        .map_err(|error| Trouble::api("read the ProvisionerClass", REMOVING, &error))?;
    Ok(match found {
        ClassFound::Ours(class) => class.service_account.map(|chosen| ServiceAccount {
            namespace: chosen.namespace,
            name: chosen.name,
        }),
        _ => None,
    })
}

/// Whether anything may have been applied, as far as the object itself tells: by its status, or by what other tools are told beforehand.
fn may_have_installed(object: &DynamicObject) -> bool {
    let status = deployment::status_of(object);
    let told = object
        .annotations()
        .get(names::ANNOTATION_APPLYSET_GROUP_KINDS);
    status.installed.is_some()
        || status.active_bundle.is_some()
        || told.is_some_and(|kinds| !kinds.is_empty())
}

async fn remove(object: &DynamicObject, room: &Room) -> Result<(), Trouble> {
    let uid = object.metadata.uid.as_deref().unwrap_or_default();
    let unreadable = |error| Trouble::inventory("RemovalFailed", &error);
    let inventory = room.inventories.load(uid).await.map_err(unreadable)?;
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
                room.shared.settings.state_namespace
            ),
        ));
    };
    let mut left = (*inventory).clone();
    forget_replaced_namespaces(room, &mut left).await;
    if !left.is_empty() {
        let done = remove_objects(object, room, &mut left, deletion, orphan).await;
        if let Err(trouble) = done {
            // What is gone need not be looked at again.
            room.inventories.save(uid, left).await.map_err(unreadable)?;
            return Err(trouble);
        }
    }
    Ok(())
}

/// Objects went with their namespace, also where another one has its name now.
async fn forget_replaced_namespaces(room: &Room, left: &mut Inventory) {
    let names: BTreeSet<String> = left.namespaces().map(|(name, _)| name.to_owned()).collect();
    let names = names.iter().map(String::as_str).collect();
    let Ok(live) = namespaces::uids(&room.own, names).await else {
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
    room: &Room,
    left: &mut Inventory,
    deletion: Option<Deletion>,
    orphan: bool,
) -> Result<(), Trouble> {
    let Some(account) = account(object, room).await? else {
        if orphan {
            return Ok(());
        }
        return Err(refused(
            codes::install::NO_ACCOUNT,
            "the ProvisionerClass is gone and it is not recorded who installed: create the class again, or set spec.deletion.objects: Orphan to leave the objects behind".to_owned(),
        ));
    };
    let client = room
        .shared
        .client_as(&account)
        .map_err(|error| refused(codes::install::NO_ACCOUNT, crate::chain(&error)))?;
    let recorded = left.clone();
    let remover = Remover {
        apis: &room.apis,
        client: &client,
        account: &account,
        inventory: &recorded,
        reason: "RemovalFailed",
    };
    let keys: Vec<String> = recorded.objects().map(|(key, _)| key.to_owned()).collect();
    if orphan {
        let released = match remover.present(&keys).await {
            Ok(present) => remover.release(&present).await,
            Err(trouble) => Err(trouble),
        };
        return match released {
            // Whoever asked for the objects to be left behind is not kept waiting for labels that cannot be taken off.
            Err(trouble) if trouble.retry != Retry::Soon => {
                tracing::warn!(
                    deployment = object.name_any(),
                    why = trouble.message,
                    "objects are left behind with our labels"
                );
                Ok(())
            }
            other => other,
        };
    }
    // To leave something behind harms nobody, whoever wrote it; to lose other people's resources has to be asked for by somebody.
    let policy = deletion
        .filter(|_| super::seal::vouched(room, object, Kind::BundleDeployment).is_ok())
        .map_or(CustomResources::Refuse, |deletion| {
            deletion.custom_resources
        });
    let present = remover.present(&keys).await?;
    tear_down(&remover, left, present, policy).await
}

async fn tear_down(
    remover: &Remover<'_>,
    left: &mut Inventory,
    mut present: Vec<Present>,
    policy: CustomResources,
) -> Result<(), Trouble> {
    let end = Instant::now() + WAIT;
    if policy != CustomResources::Delete {
        let in_use = remover.in_use(&present).await?;
        if policy == CustomResources::Refuse && !in_use.is_empty() {
            let list = in_use
                .iter()
                .map(|kept| format!("{}: {}", kept.id, kept.why))
                .collect();
            return Err(Trouble {
                retry: Retry::Soon,
                ..refused(
                    codes::install::RESOURCES_LEFT,
                    format!(
                        "nothing is torn down while custom resources exist that were not installed by it: {} (delete them, or set spec.deletion.customResources: Orphan or Delete)",
                        super::trouble::list(list, 10)
                    ),
                )
            });
        }
        let (orphans, rest): (Vec<_>, Vec<_>) = present
            .into_iter()
            .partition(|present| in_use.iter().any(|kept| kept.id == present.id));
        remover.release(&orphans).await?;
        for orphan in orphans {
            left.forget(&orphan.key);
        }
        present = rest;
    }
    while !present.is_empty() {
        let step: Vec<Present> = next_step(&present).into_iter().cloned().collect();
        let mut gone = BTreeSet::new();
        let mut deleted = remover.delete(&step, &mut gone).await;
        if deleted.is_ok() {
            deleted = remover.until_gone(&step, &mut gone, end).await;
        }
        for key in &gone {
            left.forget(key);
        }
        present.retain(|present| !gone.contains(&present.key));
        deleted?;
        let waiting: Vec<&Present> = step
            .iter()
            .filter(|present| !gone.contains(&present.key))
            .collect();
        if !waiting.is_empty() || !present.is_empty() && Instant::now() > end {
            return Err(Trouble::new(
                codes::install::REMOVAL_FAILED,
                REMOVING,
                format!(
                    "{} objects are left; waiting for these to go: {}",
                    present.len(),
                    name_some(&waiting)
                ),
                Retry::Soon,
            ));
        }
    }
    Ok(())
}

fn refused(code: Code, message: String) -> Trouble {
    Trouble::new(code, "RemovalRefused", message, Retry::Slowly)
}
