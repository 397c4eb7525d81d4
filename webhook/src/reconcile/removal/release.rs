//! Releases objects that a removal does not delete.

use bundle_core::object::ObjectId;
use futures::StreamExt as _;
use kube::Client;

use crate::reconcile::api::discovery::Kind;
use crate::reconcile::api::object::{self, ReleaseResult};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::inventory::present::SharedPresentObject;
use crate::reconcile::removal::remove::Remover;
use crate::reconcile::slots::ApplySlots;

/// Maximum number of attempts to release an object while other actors change it.
const MAX_ATTEMPTS: u32 = 3;

impl Remover<'_> {
    /// Releases `objects`: removes their owner labels, so that they belong to no BundleDeployment.
    /// The slots for the comparisons count towards the limit of `requester`. An object keeps its
    /// labels if mutating admission would also change it in this write, if it cannot be compared,
    /// or if the API server does not respond in time. Without a record in an inventory, these
    /// labels have no effect.
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
        let mut result = Ok(());
        while let Some((present, done)) = results.next().await {
            match done {
                Ok(ReleaseResult::Released) => {}
                Ok(ReleaseResult::Unchanged(why)) => tracing::warn!(
                    object = present.key,
                    why,
                    "an object keeps its owner labels"
                ),
                Err(error) => {
                    let failed = self.failed(&format!("release {}", present.id), &error);
                    result = result.and(Err(failed));
                }
            }
        }
        result
    }
}

/// Releases the object with this kind, id and uid. Each attempt waits for a slot of `requester`,
/// because it compares two copies of the object in memory.
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
            result => return result,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future;
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::discovery::ApiResource;
    use serde_json::{Value, json};
    use tokio::time::Instant;
    use tower::{BoxError, service_fn};

    use super::*;

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

    /// Releases ConfigMap `name` in namespace `team-a` as `requester`.
    async fn released(
        client: &Client,
        name: &str,
        (slots, requester): (&ApplySlots, &str),
    ) -> Result<ReleaseResult, kube::Error> {
        let kind = Kind {
            resource: ApiResource {
                group: String::new(),
                version: "v1".to_owned(),
                api_version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                plural: "configmaps".to_owned(),
            },
            namespaced: true,
        };
        let id = ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("team-a".to_owned()),
            name: name.to_owned(),
        };
        release_object(client, (&kind, &id, "ours"), (slots, requester)).await
    }

    fn config_map() -> (u16, Value) {
        let metadata = json!({"name": "web", "uid": "ours", "resourceVersion": "7"});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        (200, body)
    }

    fn conflict() -> (u16, Value) {
        let body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "code": 409, "reason": "Conflict", "message": "changed",
        });
        (409, body)
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
            vec![config_map(), conflict()],
            vec![config_map(), config_map(), conflict()],
            vec![config_map(), config_map(), config_map()],
        ];
        let result = release(answers.concat()).await;
        assert_eq!(result.unwrap(), ReleaseResult::Released);
        let answers = (0..MAX_ATTEMPTS).flat_map(|_| [config_map(), conflict()]);
        let result = release(answers.collect()).await;
        assert!(object::is_conflict(&result.unwrap_err()));
    }
}
