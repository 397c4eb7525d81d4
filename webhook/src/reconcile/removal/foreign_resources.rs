//! Foreign custom resources: custom resources that the BundleDeployment did not install. A
//! CustomResourceDefinition with foreign custom resources is never deleted. If its custom resources
//! cannot be listed, foreign custom resources may exist.

use std::collections::{BTreeMap, BTreeSet};

use bundle_core::object::CustomKind;
use bundle_core::plan::inventory::Inventory;
use bundle_core::plan::phases::Phase;
use kube::core::discovery::ApiResource;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object;
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::namespaces::{self, NamespaceUids};
use crate::reconcile::inventory::present::{KeptObject, PresentObject, SharedPresentObject};
use crate::reconcile::removal::remove::Remover;

/// Reason to keep a definition with an unknown kind.
const UNKNOWN_KIND: &str = "its custom resources cannot be listed, because its group, kind, plural, scope or versions are unknown: correct the definition";

/// Maximum number of names of custom resources of one kind in a message.
const MAX_NAMED_RESOURCES: usize = 3;

/// Custom resources of one kind that the BundleDeployment did not install.
#[derive(Default)]
struct ForeignResources {
    /// Foreign custom resources that are cluster-scoped, or that are in a namespace with objects of
    /// the BundleDeployment. Messages contain the names of the first of these.
    in_own_namespaces: ResourceList,
    /// The number of foreign custom resources in other namespaces. Recreated namespaces count as
    /// other namespaces, because they may belong to another owner.
    in_other_namespaces: usize,
}

/// Custom resources of one kind.
#[derive(Default)]
struct ResourceList {
    count: usize,
    /// Names of the first custom resources, at most [`MAX_NAMED_RESOURCES`].
    first: Vec<String>,
}

impl Remover<'_> {
    /// Returns the CustomResourceDefinitions among `objects` that must not be deleted, each with
    /// the reason: foreign custom resources exist, or the custom resources cannot be listed.
    pub(in crate::reconcile) async fn in_use(
        &self,
        objects: &[SharedPresentObject],
    ) -> Result<Vec<KeptObject>, ReconcileError> {
        let definitions: Vec<&SharedPresentObject> = objects
            .iter()
            .filter(|present| Phase::of(&present.id.group, &present.id.kind) == Phase::Crds)
            .collect();
        let mut kept = Vec::new();
        if definitions.is_empty() {
            return Ok(kept);
        }
        let namespaces = self.inventory.namespaces_of_objects();
        for present in definitions {
            if let Some(why) = self.reason_to_keep(present, &namespaces).await? {
                kept.push(KeptObject {
                    id: present.id.clone(),
                    why: why.into(),
                });
            }
        }
        Ok(kept)
    }

    /// Returns the reason why the definition must not be deleted. Returns `None` if it has no
    /// foreign custom resources, or no longer exists. `recorded` contains the names of the
    /// namespaces with recorded objects.
    async fn reason_to_keep(
        &self,
        present: &PresentObject,
        recorded: &BTreeSet<String>,
    ) -> Result<Option<String>, ReconcileError> {
        let failed = |error: kube::Error| self.failed(&format!("read {}", present.id), &error);
        let definition = object::read(self.client, &present.kind, None, &present.id.name)
            .await
            .map_err(failed)?;
        let uid = Some(present.uid.as_str());
        let definition = definition.filter(|found| found.metadata.uid.as_deref() == uid);
        let Some(definition) = definition else {
            return Ok(None);
        };
        let custom = serde_json::to_value(&definition)
            .ok()
            .and_then(|value| CustomKind::of(&value));
        drop(definition);
        let Some(custom) = custom else {
            return Ok(Some(UNKNOWN_KIND.to_owned()));
        };
        // The API server stores custom resources also if it serves no version.
        let Some(version) = custom.versions.first() else {
            return Ok(Some(unlisted_reason("no version is served")));
        };
        if let Some(foreign) = self.foreign(&custom, version, recorded).await? {
            return Ok(foreign.why(&custom.plural));
        }
        // The definition may have been deleted before the list.
        let now = self.observe(&present.kind, &present.id).await;
        let now = now.map_err(failed)?;
        let still_exists = now.is_some_and(|now| now.metadata.uid.as_deref() == uid);
        Ok(still_exists.then(|| {
            let group = &custom.group;
            unlisted_reason(&format!("the API server does not serve {group}/{version}"))
        }))
    }

    /// Returns the foreign custom resources of the definition `custom`, which has the served
    /// version `version`. Returns `None` if the API server does not serve the custom resources.
    /// `recorded` contains the names of the namespaces with recorded objects.
    async fn foreign(
        &self,
        custom: &CustomKind,
        version: &str,
        recorded: &BTreeSet<String>,
    ) -> Result<Option<ForeignResources>, ReconcileError> {
        let mut foreign = ForeignResources::default();
        let kind = Kind {
            resource: ApiResource {
                group: custom.group.clone(),
                version: version.to_owned(),
                api_version: format!("{}/{version}", custom.group),
                kind: custom.kind.clone(),
                plural: custom.plural.clone(),
            },
            namespaced: custom.namespaced,
        };
        let mut in_recorded = BTreeMap::<String, ResourceList>::new();
        let listed = object::list(self.client, &kind, |id, uid| {
            let key = id.to_string();
            if self.inventory.owns(&key, uid) {
                return;
            }
            match id.namespace {
                None => foreign.in_own_namespaces.add(key),
                Some(name) if recorded.contains(&name) => {
                    in_recorded.entry(name).or_default().add(key);
                }
                Some(_) => foreign.in_other_namespaces += 1,
            }
        })
        .await;
        match listed {
            Ok(()) => {}
            Err(error) if object::is_not_found(&error) => return Ok(None),
            // If the list fails, foreign custom resources may exist. Therefore the removal fails
            // and does not delete the definition.
            Err(error) => return Err(self.failed(&format!("list {}", custom.plural), &error)),
        }
        // Only the namespaces of the listed resources are read. They are read after the list, so
        // that the uids of namespaces which were recreated before the list differ from the recorded
        // uids.
        let names = in_recorded.keys().map(String::as_str).collect();
        let live = namespaces::uids(self.own, names)
            .await
            .map_err(|error| ReconcileError::api("read the namespaces", self.reason, &error))?;
        foreign.add_recorded(in_recorded, &live, self.inventory);
        Ok(Some(foreign))
    }
}

/// Returns the reason to keep a definition whose custom resources cannot be listed because of
/// `why`.
fn unlisted_reason(why: &str) -> String {
    format!(
        "its custom resources cannot be listed, because {why}: serve a version of the definition again"
    )
}

impl ResourceList {
    fn add(&mut self, key: String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_RESOURCES {
            self.first.push(key);
        }
    }

    fn append(&mut self, other: Self) {
        self.count += other.count;
        let free = MAX_NAMED_RESOURCES.saturating_sub(self.first.len());
        self.first.extend(other.first.into_iter().take(free));
    }
}

impl ForeignResources {
    /// Adds `resources`, a map from the name of a namespace to its custom resources. If the uid of
    /// a namespace in `live` differs from the recorded uid, the namespace was recreated, and its
    /// resources count as resources in other namespaces.
    fn add_recorded(
        &mut self,
        resources: BTreeMap<String, ResourceList>,
        live: &NamespaceUids,
        inventory: &Inventory,
    ) {
        for (name, list) in resources {
            let uid = live.get(&name);
            if uid.is_some_and(|uid| inventory.owns_namespace(&name, uid)) {
                self.in_own_namespaces.append(list);
            } else {
                self.in_other_namespaces += list.count;
            }
        }
    }

    /// Returns the reason why the definition of `plural` is not deleted. Returns `None` if no
    /// foreign custom resources exist. The text contains only the number of resources in other
    /// namespaces, and not their names.
    fn why(&self, plural: &str) -> Option<String> {
        let own = &self.in_own_namespaces;
        let count = own.count + self.in_other_namespaces;
        if count == 0 {
            return None;
        }
        let mut parts = own.first.clone();
        if own.count > own.first.len() {
            parts.push("…".to_owned());
        }
        if self.in_other_namespaces > 0 {
            parts.push(format!("{} in other namespaces", self.in_other_namespaces));
        }
        Some(format!("{count} {plural} exist ({})", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::future;
    use std::sync::Arc;

    use bundle_core::object::ObjectId;
    use http::{Request, Response};
    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::clients::cluster::ServiceAccount;
    use crate::reconcile::api::discovery::Apis;
    use crate::reconcile::removal::ordered_removal::OrderedRemoval;

    /// Returns a client of a server that responds with status and body of `answer`, which gets the
    /// path of the request.
    fn scripted_client(mut answer: impl FnMut(&str) -> (u16, Value) + Send + 'static) -> Client {
        let service = service_fn(move |request: Request<Body>| {
            let (status, body) = answer(request.uri().path());
            let body = Body::from(body.to_string().into_bytes());
            let response = Response::builder().status(status).body(body);
            future::ready(Ok::<_, BoxError>(response.unwrap()))
        });
        Client::new(service, "default")
    }

    /// Returns the recorded definition of kind `Queue`.
    fn present() -> SharedPresentObject {
        let id = ObjectId {
            group: "apiextensions.k8s.io".to_owned(),
            version: "v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespace: None,
            name: "queues.shop.example.com".to_owned(),
        };
        let kind = Kind {
            resource: ApiResource {
                group: id.group.clone(),
                version: id.version.clone(),
                api_version: format!("{}/{}", id.group, id.version),
                kind: id.kind.clone(),
                plural: "customresourcedefinitions".to_owned(),
            },
            namespaced: false,
        };
        Arc::new(PresentObject {
            key: id.to_string(),
            id,
            kind: Arc::new(kind),
            uid: "ours".to_owned(),
            held_by: Vec::new(),
        })
    }

    fn remover<'a>(
        client: &'a Client,
        (apis, account, inventory): (&'a Apis, &'a ServiceAccount, &'a Inventory),
    ) -> Remover<'a> {
        Remover {
            apis,
            client,
            own: client,
            account,
            inventory,
            reason: "RemovalFailed",
        }
    }

    /// Returns the reason to keep the definition of kind `Queue`. `answer` gets the path of each
    /// request, and returns the status and the body of the response.
    async fn reason_to_keep(
        answer: impl FnMut(&str) -> (u16, Value) + Send + 'static,
    ) -> Option<String> {
        let client = scripted_client(answer);
        let apis = Apis::new(client.clone());
        let account = ServiceAccount::parse("bundle-system", "installer").unwrap();
        let inventory = Inventory::new("shop");
        let remover = remover(&client, (&apis, &account, &inventory));
        let mut kept = remover.in_use(&[present()]).await.unwrap();
        kept.pop().map(|kept| kept.why.to_string())
    }

    /// Returns a response with the definition of kind `Queue`, which has one version.
    fn definition(uid: &str, served: bool) -> (u16, Value) {
        let body = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "queues.shop.example.com", "uid": uid},
            "spec": {
                "group": "shop.example.com", "scope": "Namespaced",
                "names": {"kind": "Queue", "plural": "queues"},
                "versions": [{"name": "v1", "served": served, "storage": true}],
            },
        });
        (200, body)
    }

    fn not_found() -> (u16, Value) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 404, "reason": "NotFound", "message": "no",
        });
        (404, body)
    }

    fn is_list(path: &str) -> bool {
        path == "/apis/shop.example.com/v1/queues"
    }

    #[tokio::test]
    async fn definition_without_a_served_version_is_kept() {
        let why = reason_to_keep(|path| {
            assert!(!is_list(path), "{path}");
            definition("ours", false)
        })
        .await;
        assert_eq!(
            why.as_deref(),
            Some(
                "its custom resources cannot be listed, because no version is served: serve a version of the definition again"
            )
        );
        // The definition was recreated, so this removal does not delete it.
        let why = reason_to_keep(|_| definition("other", false)).await;
        assert_eq!(why, None);
    }

    #[tokio::test]
    async fn definition_of_an_unknown_kind_is_kept() {
        let why = reason_to_keep(|_| {
            let (status, mut body) = definition("ours", true);
            body["spec"]["names"] = json!({});
            (status, body)
        })
        .await;
        assert_eq!(why.as_deref(), Some(UNKNOWN_KIND));
    }

    #[tokio::test]
    async fn existing_definition_whose_list_is_not_found_is_kept() {
        let why = reason_to_keep(|path| {
            if is_list(path) {
                not_found()
            } else {
                definition("ours", true)
            }
        })
        .await;
        assert_eq!(
            why.as_deref(),
            Some(
                "its custom resources cannot be listed, because the API server does not serve shop.example.com/v1: serve a version of the definition again"
            )
        );
    }

    #[tokio::test]
    async fn definition_that_is_deleted_or_recreated_before_the_list_has_no_custom_resources() {
        for after in [not_found(), definition("other", true)] {
            let mut is_listed = false;
            let why = reason_to_keep(move |path| {
                if is_list(path) {
                    is_listed = true;
                    not_found()
                } else if is_listed {
                    after.clone()
                } else {
                    definition("ours", true)
                }
            })
            .await;
            assert_eq!(why, None);
        }
    }

    #[tokio::test]
    async fn prune_searches_again_directly_before_the_deletion_of_a_definition() {
        let client = scripted_client(|_| definition("ours", false));
        let apis = Apis::new(client.clone());
        let account = ServiceAccount::parse("bundle-system", "installer").unwrap();
        let inventory = Inventory::new("shop");
        let remover = remover(&client, (&apis, &account, &inventory));
        // The first search has found no reason to keep the definition.
        let mut left = Inventory::new("shop");
        let mut rest = OrderedRemoval::new(vec![present()], Vec::new(), &mut left).with_search();
        let in_deletion = rest.remove(&remover).await.unwrap();
        assert!(in_deletion.is_empty(), "{in_deletion:?}");
        let warnings = rest.progress().prune_warnings(&in_deletion);
        assert_eq!(
            warnings,
            [
                "CustomResourceDefinition.apiextensions.k8s.io/queues.shop.example.com is no longer part of the content and stays: its custom resources cannot be listed, because no version is served: serve a version of the definition again"
            ]
        );
    }

    #[tokio::test]
    async fn definition_without_custom_resources_is_not_kept() {
        let why = reason_to_keep(|path| {
            if is_list(path) {
                let body = json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {}, "items": [],
                });
                (200, body)
            } else {
                definition("ours", true)
            }
        })
        .await;
        assert_eq!(why, None);
    }

    #[test]
    fn custom_resources_of_other_namespaces_are_counted_and_not_named() {
        let foreign = |named: &[&str], here, elsewhere| ForeignResources {
            in_own_namespaces: ResourceList {
                count: here,
                first: named.iter().map(|&name| name.to_owned()).collect(),
            },
            in_other_namespaces: elsewhere,
        };
        for (foreign, why) in [
            (foreign(&[], 0, 0), None),
            (
                foreign(&["Queue.x/a/b"], 1, 0),
                Some("1 queues exist (Queue.x/a/b)"),
            ),
            (
                foreign(&[], 0, 2),
                Some("2 queues exist (2 in other namespaces)"),
            ),
            (
                foreign(&["a", "b", "c"], 5, 1),
                Some("6 queues exist (a, b, c, …, 1 in other namespaces)"),
            ),
        ] {
            assert_eq!(foreign.why("queues").as_deref(), why);
        }
    }

    #[test]
    fn custom_resources_of_recreated_namespaces_are_counted_and_not_named() {
        let mut inventory = Inventory::new("shop");
        for name in ["gone", "recreated", "shop", "shop-2"] {
            inventory.record_namespace(name, format!("{name}-1"));
        }
        let live = NamespaceUids::from(
            [
                ("recreated", "recreated-2"),
                ("shop", "shop-1"),
                ("shop-2", "shop-2-1"),
            ]
            .map(|(name, uid)| (name.to_owned(), uid.to_owned())),
        );
        let mut resources = BTreeMap::<String, ResourceList>::new();
        for (namespace, count) in [("gone", 1), ("recreated", 2), ("shop", 2), ("shop-2", 4)] {
            let list = resources.entry(namespace.to_owned()).or_default();
            for number in 0..count {
                list.add(format!("Queue.x/{namespace}/{number}"));
            }
        }
        let mut foreign = ForeignResources::default();
        foreign.add_recorded(resources, &live, &inventory);
        assert_eq!(
            foreign.why("queues").as_deref(),
            Some(
                "9 queues exist (Queue.x/shop/0, Queue.x/shop/1, Queue.x/shop-2/0, …, 3 in other namespaces)"
            )
        );
    }
}
