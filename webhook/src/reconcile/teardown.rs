//! The end of a BundleDeployment: what it installed goes in the reverse order, or is let go; the finalizer goes last.
//! Not here: the single steps (remove), or the Bundles, which the API server's garbage collection takes with their owner.

use std::time::{Duration, Instant};

use bundle_api::names::{self, condition};
use bundle_core::diagnostic::{Code, codes};
use bundle_core::plan::applyset;
use bundle_core::plan::conditions::State;
use bundle_core::review::deployment::CustomResources;
use bundle_core::review::{CheckedDeploymentSpec, Kind};
use kube::ResourceExt as _;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;

use super::remove::{Remover, name_some, next_step};
use super::room::{ClassFound, Room};
use super::said::{self, Said};
use super::trouble::{Retry, Trouble};
use super::{ReconcileError, deployment, status};
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
        return Ok(Some(ServiceAccount {
            namespace: installed.namespace,
            name: installed.name,
        }));
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

async fn remove(object: &DynamicObject, room: &Room) -> Result<(), Trouble> {
    let name = object.name_any();
    let annotation = |name: &str| object.annotations().get(name).map_or("", String::as_str);
    let kinds = applyset::read_group_kinds(annotation(names::ANNOTATION_APPLYSET_GROUP_KINDS));
    let namespaces = applyset::read_namespaces(annotation(names::ANNOTATION_APPLYSET_NAMESPACES));
    // Kinds are recorded before the first object is applied: without any, there is nothing.
    if kinds.is_empty() {
        return Ok(());
    }
    let deletion = CheckedDeploymentSpec::parse(&object.data["spec"])
        .ok()
        .map(|spec| spec.deletion);
    let orphan = deletion.as_ref().is_some_and(|deletion| deletion.orphan);
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
    let remover = Remover {
        apis: &room.apis,
        scopes: &room.scopes,
        client: &client,
        account: &account,
        deployment: &name,
        reason: "RemovalFailed",
    };
    if orphan {
        let released = match remover.present(&kinds, &namespaces).await {
            Ok(present) => remover.release(&present).await,
            Err(trouble) => Err(trouble),
        };
        return match released {
            // Whoever asked for the objects to be left behind is not kept waiting for labels that cannot be taken off.
            Err(trouble) if trouble.retry != Retry::Soon => {
                tracing::warn!(
                    deployment = name,
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
    tear_down(&remover, &kinds, &namespaces, policy).await
}

async fn tear_down(
    remover: &Remover<'_>,
    kinds: &std::collections::BTreeSet<applyset::GroupKind>,
    namespaces: &std::collections::BTreeSet<String>,
    policy: CustomResources,
) -> Result<(), Trouble> {
    let end = Instant::now() + WAIT;
    let mut pause = Duration::from_millis(20);
    let mut first = true;
    loop {
        let mut present = remover.present(kinds, namespaces).await?;
        if first && policy != CustomResources::Delete {
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
            present = rest;
        }
        first = false;
        if present.is_empty() {
            return Ok(());
        }
        let step = next_step(&present);
        remover.delete(step.iter().copied()).await?;
        if Instant::now() > end {
            return Err(Trouble::new(
                codes::install::REMOVAL_FAILED,
                REMOVING,
                format!(
                    "{} objects are left; waiting for these to go: {}",
                    present.len(),
                    name_some(&step)
                ),
                Retry::Soon,
            ));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(300));
    }
}

fn refused(code: Code, message: String) -> Trouble {
    Trouble::new(code, "RemovalRefused", message, Retry::Slowly)
}
