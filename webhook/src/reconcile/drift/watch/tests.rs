//! Tests of two topics: the limit for the watches of each requester, and failed watches that
//! several BundleDeployments use. The API server of these tests has no objects.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

use bundle_core::plan::inventory::{ContentKey, Inventory};
use futures::stream;
use http::{Request, Response, StatusCode};
use kube::api::ApiResource;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tower::{BoxError, service_fn};

use super::*;
use crate::reconcile::drift::states::AppliedState;

/// The object key of a ConfigMap that the first watch of [`config_maps`] reports.
const KEY: &str = "ConfigMap/team-0/web";
const SECOND: Duration = Duration::from_secs(1);

/// An API server with empty lists. A test can reject watch requests, end watches, and send events.
#[derive(Default)]
struct Server {
    list_delay: Duration,
    /// Number of watch requests that the server will reject.
    rejections: AtomicUsize,
    /// Sender of the events of the last accepted watch. Dropping the sender ends the watch.
    events: Mutex<Option<mpsc::UnboundedSender<String>>>,
}

impl Server {
    fn client(self: &Arc<Self>) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            let query = request.uri().query().unwrap_or_default();
            let is_watch = query.contains("watch=true");
            async move {
                if is_watch {
                    return Ok::<_, BoxError>(server.watch());
                }
                tokio::time::sleep(server.list_delay).await;
                Ok(response(&json!({
                    "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList",
                    "metadata": {"resourceVersion": "1"}, "items": [],
                })))
            }
        });
        Client::new(service, "default")
    }

    fn watch(&self) -> Response<axum::body::Body> {
        let reject = |left: usize| left.checked_sub(1);
        let rejected = self
            .rejections
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, reject);
        if rejected.is_ok() {
            let mut response = response(&json!({
                "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
                "code": 503, "reason": "ServiceUnavailable", "message": "busy",
            }));
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            return response;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.events.lock().unwrap() = Some(sender);
        let lines = stream::unfold(receiver, |mut receiver| async move {
            let line: String = receiver.recv().await?;
            Some((Ok::<_, io::Error>(line), receiver))
        });
        Response::new(axum::body::Body::from_stream(lines))
    }

    /// Ends the open watch, and rejects the next `count` watch requests.
    async fn fail(&self, count: usize) {
        until(|| self.events.lock().unwrap().is_some()).await;
        self.rejections.store(count, Ordering::SeqCst);
        *self.events.lock().unwrap() = None;
    }

    /// Sends a `MODIFIED` event of object [`KEY`].
    fn send_event(&self) {
        let event = json!({"type": "MODIFIED", "object": {
            "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "web", "namespace": "team-0", "uid": "u", "resourceVersion": "7"},
        }});
        let events = self.events.lock().unwrap();
        events.as_ref().unwrap().send(format!("{event}\n")).unwrap();
    }
}

fn response(body: &Value) -> Response<axum::body::Body> {
    Response::new(body.to_string().into())
}

/// Waits until the condition is true. The tokio clock is paused, so the wait takes almost no real
/// time.
async fn until(is_true: impl Fn() -> bool) {
    for _ in 0..600 {
        if is_true() {
            return;
        }
        tokio::time::sleep(SECOND).await;
    }
    panic!("the condition is false after 10 minutes");
}

/// Returns watch keys for ConfigMaps. Each number selects one namespace, for example 0 selects
/// `team-0`.
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
    let client = Arc::<Server>::default().client();
    watches.keep(user, wanted, true, &client).await
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
    // Another requester can use the remaining slots. A watch that is already open needs no further
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
    // The content of BundleDeployment `a` now needs other watches.
    keep(&watches, ("a", "ana"), &config_maps(2..5))
        .await
        .unwrap();
    assert_eq!(watches.slots.used(), 4);
    watches.remove_user("a");
    assert_eq!(watches.slots.used(), 1);
    watches.remove_user("b");
    assert_eq!(watches.slots.used(), 0);
}

/// Opens the first watch of [`config_maps`] for `deployment`, a BundleDeployment of requester
/// `ana`.
async fn keep_first(
    watches: &Watches,
    deployment: &str,
    client: &Client,
) -> Result<(), WatchError> {
    let user = WatchUser {
        deployment,
        requester: "ana",
    };
    watches.keep(user, &config_maps(0..1), true, client).await
}

/// Returns the sorted users of the only watch.
fn users(watches: &Watches) -> Vec<String> {
    let open = watches.open.lock().unwrap();
    assert_eq!(open.len(), 1);
    let users = open.values().flat_map(|watch| {
        let users = watch.users.lock().unwrap();
        users.iter().cloned().collect::<Vec<_>>()
    });
    let mut users: Vec<_> = users.collect();
    users.sort_unstable();
    users
}

/// Returns the object keys in the tables of all watches.
fn keys(watches: &Watches) -> Vec<String> {
    let open = watches.open.lock().unwrap();
    let tables = open.values().map(|watch| watch.table.lock().unwrap());
    tables
        .flat_map(|table| table.keys().cloned().collect::<Vec<_>>())
        .collect()
}

/// Records object [`KEY`] as installed by `deployment`.
fn install(states: &InstalledStates, deployment: &str) {
    let mut inventory = Inventory::new(deployment);
    inventory.record(KEY, "u");
    states.set_inventory(deployment, Arc::new(inventory));
    states.begin_apply(deployment);
    let objects = [(KEY.to_owned(), AppliedState::default())].into();
    let key = ContentKey::from("sha256:1");
    states.finish_apply(deployment, &key, objects, &BTreeMap::new());
}

#[tokio::test(start_paused = true)]
async fn removed_user_leaves_no_objects_in_a_shared_watch() {
    let (server, watches) = (Arc::<Server>::default(), watches(8));
    let client = server.client();
    for deployment in ["a", "b", "c"] {
        keep_first(&watches, deployment, &client).await.unwrap();
    }
    for deployment in ["a", "b"] {
        install(&watches.states, deployment);
    }
    until(|| server.events.lock().unwrap().is_some()).await;
    server.send_event();
    until(|| keys(&watches) == [KEY]).await;
    for (deployment, left) in [("a", vec![KEY]), ("b", Vec::new())] {
        watches.states.close(deployment);
        watches.remove_user(deployment);
        assert_eq!(keys(&watches), left, "{deployment}");
    }
    assert_eq!(users(&watches), ["c"]);
}

#[tokio::test(start_paused = true)]
async fn observed_objects_are_owned_for_inventories_of_any_size() {
    let (server, watches) = (Arc::<Server>::default(), watches(8));
    keep_first(&watches, "a", &server.client()).await.unwrap();
    install(&watches.states, "a");
    until(|| server.events.lock().unwrap().is_some()).await;
    server.send_event();
    until(|| keys(&watches) == [KEY]).await;
    for watch in watches.open.lock().unwrap().values() {
        let mut table = watch.table.lock().unwrap();
        let seen = table[KEY].clone();
        table.insert("ConfigMap/team-0/foreign".to_owned(), seen);
    }
    let observed = |objects: &[(&str, &str)]| {
        let mut inventory = Inventory::new("a");
        for (key, uid) in objects {
            inventory.record(*key, *uid);
        }
        watches.states.set_inventory("a", Arc::new(inventory));
        let observed = watches.observed_objects("a");
        observed.into_keys().collect::<Vec<_>>()
    };
    let missing = [("ConfigMap/team-0/b", "u"), ("ConfigMap/team-0/c", "u")];
    // The table has two objects.
    assert_eq!(observed(&[]), [""; 0]);
    assert_eq!(observed(&[(KEY, "u")]), [KEY]);
    assert_eq!(observed(&[(KEY, "other")]), [""; 0]);
    assert_eq!(observed(&[&missing[..], &[(KEY, "u")]].concat()), [KEY]);
    assert_eq!(
        observed(&[&missing[..], &[(KEY, "other")]].concat()),
        [""; 0]
    );
}

#[tokio::test(start_paused = true)]
async fn lookup_of_one_observed_object_does_not_copy_all_objects() {
    let (server, watches) = (Arc::<Server>::default(), watches(8));
    keep_first(&watches, "a", &server.client()).await.unwrap();
    install(&watches.states, "a");
    until(|| server.events.lock().unwrap().is_some()).await;
    server.send_event();
    until(|| keys(&watches) == [KEY]).await;
    let all: Vec<String> = (0..20_000)
        .map(|number| format!("{KEY}-{number}"))
        .collect();
    let mut inventory = Inventory::new("a");
    for key in &all {
        inventory.record(key, "u");
    }
    watches.states.set_inventory("a", Arc::new(inventory));
    for watch in watches.open.lock().unwrap().values() {
        let mut table = watch.table.lock().unwrap();
        let seen = table[KEY].clone();
        table.extend(all.iter().map(|key| (key.clone(), seen.clone())));
    }
    assert!(all.iter().all(|key| watches.observes("a", key)));
    // The watch reports this object, and the inventory does not record it any more.
    assert!(!watches.observes("a", KEY));
    assert!(!watches.observes("b", &all[0]));
}

#[tokio::test(start_paused = true)]
async fn failed_watch_stays_open_for_its_other_users_and_recovers() {
    let (server, watches) = (Arc::<Server>::default(), watches(8));
    let client = server.client();
    for deployment in ["a", "b"] {
        keep_first(&watches, deployment, &client).await.unwrap();
    }
    install(&watches.states, "a");
    server.fail(usize::MAX).await;
    until(|| watches.watch_failure("a").is_some()).await;
    // `b` used the watch before and keeps it. `c` did not use the watch before and does not become
    // a user.
    for deployment in ["b", "c"] {
        let error = keep_first(&watches, deployment, &client).await.unwrap_err();
        assert_eq!(error.code().id, "BUNDLE-INSTALL-011");
        assert_eq!(users(&watches), ["a", "b"]);
    }
    assert!(watches.watch_failure("b").is_some());

    server.rejections.store(0, Ordering::SeqCst);
    // The watch recovers although the server sends no event.
    until(|| watches.watch_failure("a").is_none()).await;
    assert_eq!(watches.watch_failure("b"), None);
    assert!(watches.states.drifted("a").is_empty());
    server.send_event();
    until(|| watches.states.drifted("a").contains_key(KEY)).await;
    keep_first(&watches, "c", &client).await.unwrap();
    assert_eq!(users(&watches), ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn failures_with_a_working_watch_between_them_do_not_add_up() {
    let (server, watches) = (Arc::<Server>::default(), watches(8));
    keep_first(&watches, "a", &server.client()).await.unwrap();
    for _ in 0..5 {
        server.fail(1).await;
        tokio::time::sleep(60 * SECOND).await;
        assert_eq!(watches.watch_failure("a"), None);
    }
    server.fail(3).await;
    until(|| watches.watch_failure("a").is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn slow_first_list_continues_for_the_deployments_that_still_wait() {
    let list_delay = FIRST_LIST_TIMEOUT + 10 * SECOND;
    let server = Arc::new(Server {
        list_delay,
        ..Server::default()
    });
    let (watches, client) = (watches(8), server.client());
    let later = async {
        tokio::time::sleep(20 * SECOND).await;
        keep_first(&watches, "b", &client).await
    };
    let (first, second) = tokio::join!(keep_first(&watches, "a", &client), later);
    assert!(first.unwrap_err().to_string().contains("no answer within"));
    second.unwrap();
    assert_eq!(users(&watches), ["b"]);

    // The watch is closed after its only user was removed.
    watches.remove_user("b");
    let error = keep_first(&watches, "a", &client).await;
    assert!(error.is_err());
    assert_eq!(watches.slots.used(), 0);
}
