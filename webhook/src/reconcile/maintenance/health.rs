//! Health checks of installed objects that have changed. `install::health` reads the objects.

use bundle_core::plan::health::Health;
use futures::StreamExt as _;
use kube::Client;

use crate::reconcile::api::object;
use crate::reconcile::context::Context;
use crate::reconcile::install::health::{KIND_NOT_SERVED, health_of};

/// Checks and records the health of each object that is marked for a health check. Returns true if
/// an object must be checked again, because the object could not be read or its kind was not
/// served.
pub(in crate::reconcile) async fn check_health(
    ctx: &Context,
    client: &Client,
    deployment: &str,
) -> bool {
    let mut again = false;
    let touched = ctx.states.take_touched(deployment);
    let mut looked =
        crate::reconcile::api::parallel::stream(touched.into_iter().map(|key| async move {
            let probes = ctx.states.probes(deployment, &key);
            let uid = ctx.states.uid(deployment, &key);
            let installed = (key.as_str(), uid.as_deref());
            let health = health_of(ctx, client, installed, &probes).await;
            (key, health)
        }));
    while let Some((key, health)) = looked.next().await {
        let why = match health {
            Ok(Health::Ready) => None,
            // The kind may be served now: cached discovery data can be older than the
            // CustomResourceDefinition of the kind.
            Ok(Health::Waiting(why)) if why == KIND_NOT_SERVED => {
                again = true;
                ctx.states.mark_touched(deployment, &key);
                Some(why)
            }
            Ok(Health::Waiting(why) | Health::Failed(why)) => Some(why),
            Err(error) => {
                again = true;
                ctx.states.mark_touched(deployment, &key);
                Some(format!("cannot be read: {}", object::error_message(&error)))
            }
        };
        ctx.states.record_health(deployment, &key, why);
    }
    again
}
