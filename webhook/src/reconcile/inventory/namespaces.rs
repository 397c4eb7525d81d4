//! The uids of existing namespaces. If the uid of a namespace differs from the uid in the
//! inventory, the namespace was deleted and created again.

use std::collections::{BTreeMap, BTreeSet};

use bundle_cluster::ByName;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use kube::{Client, ResourceExt as _};

use crate::reconcile::api::{object, parallel};

/// The uids of existing namespaces, by name.
pub(in crate::reconcile) type NamespaceUids = BTreeMap<String, String>;

/// An existing namespace.
struct LiveNamespace {
    uid: String,
    is_terminating: bool,
}

/// Returns the uids of those namespaces in `names` that exist.
pub(in crate::reconcile) async fn uids(
    client: &Client,
    names: BTreeSet<&str>,
) -> Result<NamespaceUids, kube::Error> {
    let live = read_all(client, names).await?.into_iter();
    Ok(live.map(|(name, found)| (name, found.uid)).collect())
}

/// Returns the uids of those namespaces in `names` in which objects can be created. A terminating
/// namespace counts as missing, because a new namespace may have this name when the request
/// arrives.
pub(in crate::reconcile) async fn active(
    client: &Client,
    names: BTreeSet<&str>,
) -> Result<NamespaceUids, kube::Error> {
    let live = read_all(client, names).await?.into_iter();
    let active = live.filter(|(_, found)| !found.is_terminating);
    Ok(active.map(|(name, found)| (name, found.uid)).collect())
}

/// Reads those namespaces in `names` that exist. `client` has the identity of the pod, so the
/// installing ServiceAccount needs no permission to read namespaces.
async fn read_all(
    client: &Client,
    names: BTreeSet<&str>,
) -> Result<BTreeMap<String, LiveNamespace>, kube::Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let mut looks = parallel::stream(names.into_iter().map(|name| {
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
    }));
    let mut live = BTreeMap::new();
    while let Some(look) = looks.next().await {
        live.extend(look?);
    }
    Ok(live)
}

/// Returns a message for each of `names` that is not in `live`. The message equals the message of
/// the API server.
pub(in crate::reconcile) fn missing(names: BTreeSet<&str>, live: &NamespaceUids) -> Vec<String> {
    let missing = names.into_iter().filter(|name| !live.contains_key(*name));
    missing
        .map(|name| format!("namespaces \"{name}\" not found"))
        .collect()
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// Returns a client of a server with two namespaces: `old`, which is terminating, and `new`.
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
