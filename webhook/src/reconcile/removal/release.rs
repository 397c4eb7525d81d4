//! Releases objects that a removal does not delete.

use std::sync::Mutex;
use std::time::Duration;

use bundle_core::object::ObjectId;
use futures::StreamExt as _;
use kube::Client;
use tokio::time::Instant;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::{self, ReleaseResult};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::present::SharedPresentObject;
use crate::reconcile::removal::remove::Remover;
use crate::reconcile::slots::ApplySlots;

/// Maximum number of attempts to release an object while other actors change it.
const MAX_ATTEMPTS: u32 = 3;
/// Time limit for reading the metadata of an object before its release. A slow conversion webhook
/// can delay this read.
const READ_LIMIT: Duration = Duration::from_secs(15);
/// Maximum duration of one call of [`Remover::present_for_release`] or [`Remover::release`] for a
/// few hundred objects. Slow admission or conversion webhooks can delay the read of each object by
/// 15 s, and its release by another 15 s.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// Average time limit for one object if there are many objects. A requester can have two releases
/// at the same time, so each release can take twice this time.
const TIME_FOR_EACH: Duration = Duration::from_millis(100);

impl Remover<'_> {
    /// Returns the recorded objects with the object keys `keys` that exist, for a removal that
    /// deletes no object. An object is omitted, and keeps its labels, if the API server does not
    /// respond within [`READ_LIMIT`] or responds with an error that concerns this object. After
    /// [`time_limit`], all remaining objects are omitted. Fails if the API server is busy (429) or
    /// rejects connections.
    pub(in crate::reconcile) async fn present_for_release(
        &self,
        keys: &[String],
    ) -> Result<Vec<SharedPresentObject>, ReconcileError> {
        // With stale discovery data, objects of a kind whose served version changed would count as
        // missing.
        self.apis.forget_custom().await;
        let kinds = &Mutex::default();
        let mut looks =
            crate::reconcile::api::parallel::stream(keys.iter().map(|key| async move {
                let look = self.present_of(key, kinds);
                (key, tokio::time::timeout(READ_LIMIT, look).await)
            }));
        let limit = time_limit(keys.len());
        let until = Instant::now() + limit;
        let mut remaining = keys.len();
        let mut all = Vec::new();
        while let Ok(next) = tokio::time::timeout_at(until, looks.next()).await {
            let Some((key, look)) = next else {
                return Ok(all);
            };
            remaining -= 1;
            match look {
                Ok(Ok(found)) => all.extend(found),
                Ok(Err(error)) if object::is_passing(&error) && !concerns_object(&error) => {
                    return Err(self.failed(&format!("read {key}"), &error));
                }
                Ok(Err(error)) => log_kept_labels(key, &crate::chain(&error)),
                Err(_) => log_kept_labels(
                    key,
                    &format!(
                        "the API server did not respond within {} s",
                        READ_LIMIT.as_secs()
                    ),
                ),
            }
        }
        log_time_limit(remaining, limit);
        Ok(all)
    }

    /// Releases `objects`: removes their owner labels, so that they belong to no BundleDeployment.
    /// The slots for the comparisons count towards the limit of `requester`. An object keeps its
    /// labels if mutating admission would also change it in this write, if it cannot be compared,
    /// if each attempt has a conflict, or if the API server responds with a server error or does
    /// not respond in time. After [`time_limit`], all remaining objects keep their labels. Without
    /// a record in an inventory, these labels have no effect.
    pub(in crate::reconcile) async fn release(
        &self,
        objects: &[SharedPresentObject],
        (slots, requester): (&ApplySlots, &str),
    ) -> Result<(), ReconcileError> {
        let mut results =
            crate::reconcile::api::parallel::stream(objects.iter().map(|present| async move {
                let released = (&*present.kind, &present.id, present.uid.as_str());
                let done = release_object(self.client, released, (slots, requester)).await;
                (present, done)
            }));
        let limit = time_limit(objects.len());
        let until = Instant::now() + limit;
        let mut remaining = objects.len();
        let mut result = Ok(());
        while let Ok(next) = tokio::time::timeout_at(until, results.next()).await {
            let Some((present, done)) = next else {
                return result;
            };
            remaining -= 1;
            match done {
                Ok(ReleaseResult::Released) => {}
                Ok(ReleaseResult::Unchanged(why)) => log_kept_labels(&present.key, &why),
                Err(error) => {
                    let failed = self.failed(&format!("release {}", present.id), &error);
                    result = result.and(Err(failed));
                }
            }
        }
        log_time_limit(remaining, limit);
        result
    }
}

/// Logs that the object with this object key keeps its owner labels.
fn log_kept_labels(key: &str, why: &str) {
    tracing::warn!(object = key, why, "an object keeps its owner labels");
}

/// Returns the maximum duration of the reads or of the releases of this number of objects.
fn time_limit(objects: usize) -> Duration {
    TIME_LIMIT.max(TIME_FOR_EACH * u32::try_from(objects).unwrap_or(u32::MAX))
}

/// Logs that `remaining` objects keep their owner labels after this time limit.
fn log_time_limit(remaining: usize, limit: Duration) {
    tracing::warn!(
        objects = remaining,
        "objects keep their owner labels, because their requests did not end within {} s",
        limit.as_secs()
    );
}

/// Returns true if other writes of the object, its values, or webhooks for its kind can be the
/// reason for the error response: a conflict or a server error (5xx). The API server responds with
/// a server error if a conversion or admission webhook fails.
fn concerns_object(error: &kube::Error) -> bool {
    object::is_conflict(error)
        || matches!(error, kube::Error::Api(status) if matches!(status.code, 500..=599))
}

/// Releases the object with this kind, id and uid. Each attempt waits for a slot of `requester`,
/// because it compares two copies of the object in memory. The object keeps its labels after a
/// server error (5xx) or a conflict in the last attempt.
async fn release_object(
    client: &Client,
    (kind, id, uid): (&Kind, &ObjectId, &str),
    (slots, requester): (&ApplySlots, &str),
) -> Result<ReleaseResult, kube::Error> {
    let mut attempts = 1;
    loop {
        let slot = slots.acquire_comparison(requester).await;
        match object::release(client, kind, id, uid, slot).await {
            Err(error) if object::is_conflict(&error) && attempts < MAX_ATTEMPTS => attempts += 1,
            Err(error) if concerns_object(&error) => {
                return Ok(ReleaseResult::Unchanged(crate::chain(&error)));
            }
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bundle_core::plan::inventory::Inventory;
    use futures::future;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::discovery::ApiResource;
    use serde_json::{Value, json};
    use tower::{BoxError, service_fn};

    use super::*;
    use crate::clients::cluster::ServiceAccount;
    use crate::reconcile::api::discovery::Apis;
    use crate::reconcile::error::RetryPolicy;
    use crate::reconcile::inventory::present::PresentObject;

    /// Returns a client of a server that responds with status and body of `answer`, which gets the
    /// path of the request. If `answer` returns `None`, the server never responds.
    fn scripted_client(
        mut answer: impl FnMut(&str) -> Option<(u16, Value)> + Send + 'static,
    ) -> Client {
        let service = service_fn(move |request: Request<Body>| {
            let answer = answer(request.uri().path());
            async move {
                let Some((status, body)) = answer else {
                    return future::pending().await;
                };
                let body = Body::from(body.to_string().into_bytes());
                let response = Response::builder().status(status).body(body);
                Ok::<_, BoxError>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    /// Returns the recorded ConfigMap `name` in namespace `team-a`.
    fn present(name: &str) -> SharedPresentObject {
        let kind = Kind {
            resource: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
            namespaced: true,
        };
        let id = ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("team-a".to_owned()),
            name: name.to_owned(),
        };
        Arc::new(PresentObject {
            key: id.to_string(),
            id,
            kind: Arc::new(kind),
            uid: "ours".to_owned(),
            held_by: Vec::new(),
        })
    }

    /// Releases ConfigMap `name` in namespace `team-a` as `requester`.
    async fn released(
        client: &Client,
        name: &str,
        (slots, requester): (&ApplySlots, &str),
    ) -> Result<ReleaseResult, kube::Error> {
        let present = present(name);
        let object = (&*present.kind, &present.id, present.uid.as_str());
        release_object(client, object, (slots, requester)).await
    }

    fn config_map() -> (u16, Value) {
        let metadata = json!({"name": "web", "uid": "ours", "resourceVersion": "7"});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        (200, body)
    }

    fn failure(code: u16) -> (u16, Value) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": code, "reason": "x", "message": "no",
        });
        (code, body)
    }

    /// Returns the list of kinds of API version `v1`.
    fn kinds() -> (u16, Value) {
        let body = json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1",
            "resources": [{
                "name": "configmaps", "singularName": "configmap", "namespaced": true,
                "kind": "ConfigMap", "verbs": ["get", "patch"],
            }],
        });
        (200, body)
    }

    /// Returns the recorded ConfigMaps `names` in namespace `team-a` that a release can read.
    async fn present_for_release(
        client: &Client,
        names: &[String],
    ) -> Result<Vec<SharedPresentObject>, ReconcileError> {
        let keys: Vec<String> = names.iter().map(|name| present(name).key.clone()).collect();
        let mut inventory = Inventory::new("web");
        for key in &keys {
            inventory.record(key, "ours");
        }
        let apis = Apis::new(client.clone());
        let account = ServiceAccount::parse("bundle-system", "installer").unwrap();
        let remover = remover(client, (&apis, &account, &inventory));
        remover.present_for_release(&keys).await
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

    #[tokio::test(start_paused = true)]
    async fn slow_objects_of_one_requester_delay_no_release_of_another_requester() {
        let client = &scripted_client(|path| (!path.contains("slow")).then(config_map));
        let slots = &ApplySlots::default();
        let start = Instant::now();
        let slow = ["slow-1", "slow-2", "slow-3", "slow-4"].map(|name| async move {
            let result = released(client, name, (slots, "ana")).await;
            (result.unwrap(), start.elapsed())
        });
        let other = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let result = released(client, "web", (slots, "ben")).await;
            (result.unwrap(), start.elapsed())
        };
        let (slow, other) = future::join(future::join_all(slow), other).await;
        assert_eq!(other.0, ReleaseResult::Released);
        assert!(other.1 < Duration::from_secs(2), "{other:?}");
        // A release without a response ends after 15 s, and two of them run at a time.
        for (result, elapsed) in &slow {
            assert!(matches!(result, ReleaseResult::Unchanged(_)), "{slow:?}");
            assert!(*elapsed < Duration::from_secs(31), "{slow:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn release_of_many_slow_objects_ends_after_its_time_limit() {
        let client = &scripted_client(|path| (!path.contains("slow")).then(config_map));
        let apis = Apis::new(client.clone());
        let account = ServiceAccount::parse("bundle-system", "installer").unwrap();
        let inventory = Inventory::new("web");
        let remover = remover(client, (&apis, &account, &inventory));
        let slow = (0..20).map(|number| present(&format!("slow-{number}")));
        let objects: Vec<_> = [present("web")].into_iter().chain(slow).collect();
        let slots = &ApplySlots::default();
        let start = Instant::now();
        remover.release(&objects, (slots, "ana")).await.unwrap();
        let elapsed = start.elapsed();
        let expected = TIME_LIMIT..TIME_LIMIT + Duration::from_secs(1);
        assert!(expected.contains(&elapsed), "{elapsed:?}");
    }

    #[tokio::test]
    async fn release_is_repeated_after_a_conflict() {
        let slots = &ApplySlots::default();
        let release = |answers: Vec<(u16, Value)>| async move {
            let mut answers = answers.into_iter();
            let client = scripted_client(move |_| answers.next());
            released(&client, "web", (slots, "ana")).await
        };
        // The second attempt has a conflict after the dry run.
        let answers = [
            vec![config_map(), failure(409)],
            vec![config_map(), config_map(), failure(409)],
            vec![config_map(), config_map(), config_map()],
        ];
        let result = release(answers.concat()).await;
        assert_eq!(result.unwrap(), ReleaseResult::Released);
        let answers = (0..MAX_ATTEMPTS).flat_map(|_| [config_map(), failure(409)]);
        let result = release(answers.collect()).await;
        assert_eq!(result.unwrap(), ReleaseResult::Unchanged("no".to_owned()));
    }

    #[tokio::test]
    async fn object_whose_webhooks_fail_keeps_its_labels() {
        let slots = &ApplySlots::default();
        let release = |answers: Vec<(u16, Value)>| async move {
            let mut answers = answers.into_iter();
            let client = scripted_client(move |_| answers.next());
            released(&client, "web", (slots, "ana")).await
        };
        for answers in [
            vec![failure(500)],
            vec![config_map(), failure(500)],
            vec![config_map(), config_map(), failure(504)],
        ] {
            let result = release(answers).await;
            assert_eq!(result.unwrap(), ReleaseResult::Unchanged("no".to_owned()));
        }
        // The API server is busy.
        assert!(release(vec![failure(429)]).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_cannot_be_read_do_not_end_a_removal_without_deletions() {
        let client = scripted_client(|path| match path.rsplit('/').next() {
            Some("v1") => Some(kinds()),
            Some("failing") => Some(failure(500)),
            Some("forbidden") => Some(failure(403)),
            Some("missing") => Some(failure(404)),
            Some("slow") => None,
            _ => Some(config_map()),
        });
        let names = ["failing", "forbidden", "missing", "slow", "web"].map(str::to_owned);
        let start = Instant::now();
        let found = present_for_release(&client, &names).await.unwrap();
        let found: Vec<&str> = found.iter().map(|present| &*present.id.name).collect();
        assert_eq!(found, ["web"]);
        let expected = READ_LIMIT..READ_LIMIT + Duration::from_secs(1);
        assert!(expected.contains(&start.elapsed()));
        // The API server is busy.
        let client = scripted_client(|path| {
            let is_list = path.ends_with("/v1");
            Some(if is_list { kinds() } else { failure(429) })
        });
        let error = present_for_release(&client, &names).await.unwrap_err();
        assert_eq!(error.retry, RetryPolicy::Soon);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_of_many_slow_objects_end_after_their_time_limit() {
        let client = scripted_client(|path| match path.rsplit('/').next() {
            Some("v1") => Some(kinds()),
            Some("web") => Some(config_map()),
            _ => None,
        });
        let slow = (0..100).map(|number| format!("slow-{number}"));
        let names: Vec<String> = ["web".to_owned()].into_iter().chain(slow).collect();
        let start = Instant::now();
        let found = present_for_release(&client, &names).await.unwrap();
        assert_eq!(found.len(), 1);
        let expected = TIME_LIMIT..TIME_LIMIT + Duration::from_secs(1);
        assert!(expected.contains(&start.elapsed()));
    }
}
