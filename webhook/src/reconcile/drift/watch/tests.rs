//! Tests of the limit for the watches of each requester. The API server of these tests has no
//! objects.

use http::{Request, Response};
use kube::api::ApiResource;
use kube::client::Body;
use serde_json::json;
use tokio::sync::mpsc;
use tower::{BoxError, service_fn};

use super::*;

/// Returns a client of an API server that lists no objects and sends no events.
fn client() -> Client {
    let service = service_fn(|request: Request<Body>| async move {
        let query = request.uri().query().unwrap_or_default();
        if query.contains("watch=true") {
            std::future::pending::<()>().await;
        }
        let list = json!({
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
            "metadata": {"resourceVersion": "1"}, "items": [],
        });
        let body = Body::from(list.to_string().into_bytes());
        Ok::<_, BoxError>(Response::new(body))
    });
    Client::new(service, "default")
}

/// Returns watches of ConfigMaps. Each number selects one namespace.
fn config_maps(namespaces: impl IntoIterator<Item = usize>) -> HashSet<WatchKey> {
    let watch = |number| WatchKey {
        account: ServiceAccount::parse("team", "installer").unwrap(),
        kind: Kind {
            resource: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
            namespaced: true,
        },
        namespace: Some(format!("team-{number}")),
    };
    namespaces.into_iter().map(watch).collect()
}

fn watches(slots: u64) -> Watches {
    let (wake, _) = mpsc::unbounded_channel();
    Watches::new(Arc::new(InstalledStates::new(wake)), Pool::new(slots))
}

async fn keep(
    watches: &Watches,
    (deployment, requester): (&str, &str),
    wanted: &HashSet<WatchKey>,
) -> Result<(), WatchError> {
    let user = WatchUser {
        deployment,
        requester,
    };
    watches.keep(user, wanted, true, &client()).await
}

#[tokio::test]
async fn requester_has_at_most_half_of_the_watches_and_none_is_opened_above_it() {
    let watches = watches(8);
    keep(&watches, ("a", "ana"), &config_maps(0..3))
        .await
        .unwrap();
    let error = keep(&watches, ("b", "ana"), &config_maps(3..5)).await;
    let error = error.unwrap_err();
    assert_eq!(error.code().id, "BUNDLE-INSTALL-047");
    let message = error.to_string();
    assert!(
        message.contains("2 more watches") && message.contains(r#""ana" can have 4"#),
        "{message}"
    );
    assert_eq!(watches.slots.used(), 3);
    keep(&watches, ("b", "ana"), &config_maps(3..4))
        .await
        .unwrap();
    // Other requesters can use the remaining slots. A watch that is already open needs no further
    // slot.
    keep(&watches, ("c", "ben"), &config_maps(0..8))
        .await
        .unwrap();
    assert_eq!(watches.slots.used(), 8);
}

#[tokio::test]
async fn closed_watches_are_available_again() {
    let watches = watches(8);
    keep(&watches, ("a", "ana"), &config_maps(0..4))
        .await
        .unwrap();
    keep(&watches, ("b", "ben"), &config_maps(0..1))
        .await
        .unwrap();
    // The same deployment now has other content.
    keep(&watches, ("a", "ana"), &config_maps(2..5))
        .await
        .unwrap();
    assert_eq!(watches.slots.used(), 4);
    watches.remove_user("a");
    assert_eq!(watches.slots.used(), 1);
    watches.remove_user("b");
    assert_eq!(watches.slots.used(), 0);
}
