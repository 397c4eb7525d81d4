//! Detection of recreated namespaces: a namespace with another uid than at installation can have
//! another owner. Namespaces that the content itself contains are handled as any other object.

use std::collections::{BTreeMap, BTreeSet};

use bundle_cluster::ByName;
use bundle_core::diagnostic::codes;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::consent::{Consent, ObjectAction};
use bundle_core::plan::phases::Phase;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use crate::reconcile::api::object;
use crate::reconcile::content::items::Item;
use crate::reconcile::deployment::state::InstallRequest;
use crate::reconcile::deployment::state::{DeploymentReconcile, MAX_LISTED};
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The uids of existing namespaces, by name.
pub(in crate::reconcile) type NamespaceUids = BTreeMap<String, String>;

/// An existing namespace.
struct LiveNamespace {
    uid: String,
    is_terminating: bool,
}

/// Returns the uids of those of `names` that exist.
pub(in crate::reconcile) async fn uids(
    own: &Client,
    names: BTreeSet<&str>,
) -> Result<NamespaceUids, kube::Error> {
    let live = read_all(own, names).await?.into_iter();
    Ok(live.map(|(name, found)| (name, found.uid)).collect())
}

/// Returns the uids of those of `names` in which objects can be created. A terminating namespace
/// counts as missing: another namespace can have its name when the request arrives.
async fn active(own: &Client, names: BTreeSet<&str>) -> Result<NamespaceUids, kube::Error> {
    let live = read_all(own, names).await?.into_iter();
    let active = live.filter(|(_, found)| !found.is_terminating);
    Ok(active.map(|(name, found)| (name, found.uid)).collect())
}

/// Reads those of `names` that exist, as the pod: the installing ServiceAccount needs no permission
/// for this.
async fn read_all(
    own: &Client,
    names: BTreeSet<&str>,
) -> Result<BTreeMap<String, LiveNamespace>, kube::Error> {
    let api: Api<Namespace> = Api::all(own.clone());
    let looks = crate::reconcile::api::parallel::all(names.into_iter().map(|name| {
        let api = api.clone();
        async move {
            match ByName(&api).get_metadata_opt(name).await {
                Ok(found) => Ok(found.and_then(|found| {
                    let live = LiveNamespace {
                        uid: found.uid()?,
                        is_terminating: found.metadata.deletion_timestamp.is_some(),
                    };
                    Some((name.to_owned(), live))
                })),
                Err(error) if object::is_not_found(&error) => Ok(None),
                Err(error) => Err(error),
            }
        }
    }))
    .await;
    looks.into_iter().filter_map(Result::transpose).collect()
}

fn names_of<'i>(items: &[&'i Item]) -> BTreeSet<&'i str> {
    let names = items.iter().filter_map(|item| item.id.namespace.as_deref());
    names.collect()
}

/// Returns an error of the API server's wording for each of `names` that is not in `live`.
fn missing(names: BTreeSet<&str>, live: &NamespaceUids) -> Vec<String> {
    let missing = names.into_iter().filter(|name| !live.contains_key(*name));
    missing
        .map(|name| format!("namespaces \"{name}\" not found"))
        .collect()
}

impl DeploymentReconcile<'_> {
    /// Returns the uids of the namespaces of `items` that exist and are not terminating.
    pub(in crate::reconcile) async fn namespaces_of(
        &self,
        items: &[&Item],
    ) -> Result<NamespaceUids, ReconcileError> {
        active(&self.ctx.own, names_of(items))
            .await
            .map_err(|error| {
                ReconcileError::api("read the namespaces", self.install_reason(), &error)
            })
    }

    /// Like [`Self::namespaces_of`], for objects that are about to be created. Fails if a namespace
    /// is missing or terminating. Otherwise the API server would reject the creation, or execute it
    /// in a new namespace of the same name.
    pub(in crate::reconcile) async fn existing_namespaces_of(
        &self,
        items: &[&Item],
    ) -> Result<NamespaceUids, ReconcileError> {
        let live = self.namespaces_of(items).await?;
        let missing = missing(names_of(items), &live);
        if missing.is_empty() {
            return Ok(live);
        }
        Err(ReconcileError::new(
            codes::install::APPLY_FAILED,
            self.install_reason(),
            format!(
                "{}; create the namespace, or wait until its deletion has ended",
                some_of(&missing, MAX_LISTED)
            ),
            RetryPolicy::Soon,
        ))
    }

    /// Checks, before objects are created, that no namespace was replaced since the installation.
    ///
    /// In a replaced namespace, the permissions of the requesters are checked again. Objects that
    /// the class decides about wait for the next write of the spec.
    pub(in crate::reconcile) async fn check_namespaces(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[&Item],
        (act, live): (ObjectAction, &NamespaceUids),
    ) -> Result<(), ReconcileError> {
        let replaced: BTreeSet<&str> = live
            .iter()
            .filter(|(name, uid)| {
                self.inventory
                    .namespace(name)
                    .is_some_and(|recorded| recorded != uid.as_str())
            })
            .map(|(name, _)| name.as_str())
            .collect();
        if replaced.is_empty() {
            return Ok(());
        }
        let rule = self.consent_rule(request);
        let is_delegated = |item: &Item| rule.consent(act, &item.id) == Consent::Delegated;
        let is_in_replaced = |item: &Item| {
            let namespace = item.id.namespace.as_deref();
            namespace.is_some_and(|namespace| replaced.contains(namespace))
        };
        let names: Vec<String> = replaced
            .iter()
            .map(|name| format!("namespace {name}"))
            .collect();
        let list = some_of(&names, MAX_LISTED);
        let conditions =
            format!("{list} was deleted and created again since the content was installed into it");
        let concerned = |item: &&&Item| is_in_replaced(item);
        if items
            .iter()
            .filter(concerned)
            .any(|item| !is_delegated(item))
        {
            let items: Vec<Item> = items.iter().map(|item| (*item).clone()).collect();
            self.authorize(request, &items, (act, true))
                .await
                .map_err(|error| ReconcileError {
                    message: format!(
                        "{conditions}, and nothing is created in it: {}",
                        error.message
                    ),
                    ..error
                })?;
        }
        if !items
            .iter()
            .filter(concerned)
            .any(|item| is_delegated(item))
            // A restore has no recent write of the spec.
            || (act == ObjectAction::Install && self.inventory.installation != self.content_key(request))
        {
            return Ok(());
        }
        Err(ReconcileError::new(
            codes::install::NAMESPACE_REPLACED,
            self.install_reason(),
            format!(
                "{conditions}: nothing is created in it until a user with permission to use the class writes the spec again"
            ),
            RetryPolicy::Slowly,
        ))
    }

    /// Checks the namespaces before installed objects are created again, or written where another
    /// actor created an object in their place.
    pub(in crate::reconcile) async fn check_before_recreate(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[&Item],
    ) -> Result<(), ReconcileError> {
        let live = self.existing_namespaces_of(items).await?;
        self.check_namespaces(request, items, (ObjectAction::Restore, &live))
            .await?;
        self.record_live(&live).await
    }

    /// Records that objects are installed into these namespaces.
    pub(in crate::reconcile) async fn record_live(
        &mut self,
        live: &NamespaceUids,
    ) -> Result<(), ReconcileError> {
        let mut inventory = (*self.inventory).clone();
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        self.save_inventory(inventory).await
    }

    /// Records the existing namespaces before anything is applied, and which of `items` is the
    /// created target namespace.
    pub(in crate::reconcile) async fn record_namespaces(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[Item],
        live: NamespaceUids,
    ) -> Result<(), ReconcileError> {
        let mut inventory = (*self.inventory).clone();
        if inventory.installation.is_empty() || inventory.record.is_some() {
            self.note_decision(&mut inventory, request);
            inventory.record.get_or_insert_default().is_unfinished = true;
        }
        inventory.installation = self.content_key(request);
        for (name, uid) in live {
            inventory.record_namespace(name, uid);
        }
        for item in items.iter().filter(|item| item.phase == Phase::Namespaces) {
            let is_created = self.created_namespace.as_ref() == Some(&item.key);
            inventory.set_created_namespace(&item.key, is_created);
        }
        self.save_inventory(inventory).await
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns a client of a server with the namespaces `old`, which is terminating, and `new`.
    fn server() -> Client {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                let name = request.uri().path().rsplit('/').next().unwrap_or_default();
                let deleted = (name == "old").then_some("2026-01-01T00:00:00Z");
                let metadata = json!({"name": name, "uid": format!("uid-of-{name}"), "deletionTimestamp": deleted});
                let (code, answer) = if ["old", "new"].contains(&name) {
                    (
                        200,
                        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata}),
                    )
                } else {
                    (
                        404,
                        json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}),
                    )
                };
                let body = Body::from(answer.to_string().into_bytes());
                let response = Response::builder().status(code).body(body);
                reply.send_response(response.unwrap());
            }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn namespace_that_is_being_deleted_gets_no_objects_and_still_exists() {
        let names = BTreeSet::from(["gone", "new", "old"]);
        let found = active(&server(), names.clone()).await.unwrap();
        assert_eq!(
            found,
            NamespaceUids::from([("new".into(), "uid-of-new".into())])
        );
        assert_eq!(
            missing(names.clone(), &found),
            [
                "namespaces \"gone\" not found",
                "namespaces \"old\" not found"
            ]
        );
        let found = uids(&server(), names).await.unwrap();
        assert_eq!(found.into_keys().collect::<Vec<_>>(), ["new", "old"]);
    }
}
