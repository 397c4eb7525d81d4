//! Waits until Namespaces and CustomResourceDefinitions are ready, because before that the API
//! server cannot store objects that depend on them. `bundle_core::plan::health` contains the rules.

use std::time::{Duration, Instant};

use bundle_core::diagnostic::codes;
use bundle_core::plan::backoff::Pauses;
use bundle_core::plan::health::{Health, health};
use kube::api::DynamicObject;

use crate::reconcile::api::object;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::error::{self, ReconcileError, RetryPolicy};
use crate::reconcile::install::executor::{Install, MAX_FAILURES};

/// Time limit until Namespaces and CustomResourceDefinitions are ready.
const READY_WAIT_LIMIT: Duration = Duration::from_secs(30);

impl Install<'_> {
    /// Waits until all of `items` are ready. Fails after 30 s.
    pub(in crate::reconcile) async fn wait_until_ready(
        &self,
        items: &[&PreparedObject],
    ) -> Result<(), ReconcileError> {
        let end = Instant::now() + READY_WAIT_LIMIT;
        let mut waiting: Vec<&PreparedObject> = items.to_vec();
        let mut pauses = Pauses::new(Duration::from_millis(20), Duration::from_millis(500));
        loop {
            let looked: Vec<_> =
                crate::reconcile::api::parallel::all(waiting.into_iter().map(|item| async move {
                    let namespace = item.id.namespace.as_deref();
                    let look =
                        object::read(self.client, &item.kind, namespace, &item.id.name).await;
                    (item, look)
                }))
                .await;
            let mut not_ready = Vec::new();
            waiting = Vec::new();
            for (item, look) in looked {
                let why = match look {
                    Ok(Some(live)) => match health_of(item, &live) {
                        Health::Ready => continue,
                        Health::Waiting(why) | Health::Failed(why) => why,
                    },
                    Ok(None) => "was deleted".to_owned(),
                    Err(error) => object::error_message(&error),
                };
                not_ready.push(format!("{}: {why}", item.key));
                waiting.push(item);
            }
            if waiting.is_empty() {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(self::not_ready(not_ready, self.reason));
            }
            tokio::time::sleep(pauses.next_pause()).await;
        }
    }
}

/// Returns the error for objects that are not ready, and the reason for each.
pub(in crate::reconcile) fn not_ready(
    objects: Vec<String>,
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::NOT_READY,
        reason,
        format!(
            "objects on which other objects depend are not ready after {} s: {}",
            READY_WAIT_LIMIT.as_secs(),
            error::joined(objects, MAX_FAILURES)
        ),
        RetryPolicy::Soon,
    )
}

/// Returns the health of an object.
fn health_of(item: &PreparedObject, live: &DynamicObject) -> Health {
    match serde_json::to_value(live) {
        Ok(value) => health(&item.id.group, &item.id.kind, &value),
        Err(error) => Health::Waiting(error.to_string()),
    }
}
