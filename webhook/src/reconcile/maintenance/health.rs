//! Health checks of installed objects after changes. The rules are in `bundle_core::plan::health`.

use bundle_core::plan::health::{Health, health};
use bundle_core::plan::inventory;
use kube::Client;

use crate::reconcile::api::discovery::is_custom;
use crate::reconcile::api::object;
use crate::reconcile::context::Context;

/// Message for an object of a kind that the API server does not serve.
const KIND_NOT_SERVED: &str = "its kind is not served";

/// Checks and records the health of each touched object. Returns true if an object must be checked
/// again, because it could not be read or its kind was not served.
pub(in crate::reconcile) async fn check_health(
    ctx: &Context,
    client: &Client,
    deployment: &str,
) -> bool {
    let mut again = false;
    let touched = ctx.states.take_touched(deployment);
    let looked: Vec<_> =
        crate::reconcile::api::parallel::all(touched.into_iter().map(|key| async move {
            let health = health_of(ctx, client, &key).await;
            (key, health)
        }))
        .await;
    for (key, health) in looked {
        let why = match health {
            Ok(Health::Ready) => None,
            // Cached discovery data can be older than a CustomResourceDefinition that has just
            // become established.
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

async fn health_of(ctx: &Context, client: &Client, key: &str) -> Result<Health, kube::Error> {
    let Some((group_kind, namespace, name)) = inventory::parts(key) else {
        return Ok(Health::Ready);
    };
    let Some(kind) = ctx.apis.preferred(&group_kind).await? else {
        return Ok(Health::Waiting(KIND_NOT_SERVED.to_owned()));
    };
    let mut live = object::read(client, &kind, namespace, name).await?;
    if live.is_none() && is_custom(&kind.resource.api_version) {
        // The API server may serve another version of the kind now.
        ctx.apis.forget_custom().await;
        live = match ctx.apis.preferred(&group_kind).await? {
            Some(now) if now != kind => object::read(client, &now, namespace, name).await?,
            _ => None,
        };
    }
    Ok(match live {
        Some(live) => {
            let value = serde_json::to_value(&live).map_err(kube::Error::SerdeError)?;
            health(&group_kind.group, &group_kind.kind, &value)
        }
        None => Health::Waiting("does not exist".to_owned()),
    })
}
