//! Deletion of installed objects by another client, and the time until each object exists again.
#![expect(clippy::disallowed_methods, reason = "the benchmark chooses all names")]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::Cluster;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::time::{interval, timeout};

/// Time between two deletions.
const INTERVAL: Duration = Duration::from_millis(50);
const DEADLINE: Duration = Duration::from_secs(120);

/// Deletes `count` ConfigMaps of the bundle in `namespace` one after the other. Returns the sorted
/// times in seconds from the response to each deletion until a watch shows the new object.
pub(super) async fn measure(cluster: &Cluster, namespace: &str, count: usize) -> Result<Vec<f64>> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client().await?, namespace);
    let listed = api.list(&ListParams::default().limit(1)).await?;
    let version = listed.metadata.resource_version.unwrap_or_default();
    let restored = tokio::spawn(timeout(DEADLINE, restored(api.clone(), version, count)));
    let mut ticks = interval(INTERVAL);
    let mut deleted = HashMap::new();
    for number in 0..count {
        ticks.tick().await;
        let name = format!("item-{number:05}");
        api.delete(&name, &DeleteParams::default()).await?;
        deleted.insert(name, Instant::now());
    }
    let restored = restored.await?.context("not every object was restored")??;
    let mut times = Vec::with_capacity(count);
    for (name, time) in restored {
        let began = deleted
            .get(&name)
            .with_context(|| format!("{name} was restored, but not deleted"))?;
        times.push(time.saturating_duration_since(*began).as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// Watches the objects until `count` of them are created. Returns the time of each creation.
async fn restored(
    api: Api<ConfigMap>,
    version: String,
    count: usize,
) -> Result<HashMap<String, Instant>> {
    let mut restored = HashMap::with_capacity(count);
    let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
    while restored.len() < count {
        let event = events.try_next().await?;
        match event.context("the watch of the objects ended")? {
            WatchEvent::Added(object) => {
                let is_new = restored.insert(object.name_any(), Instant::now()).is_none();
                ensure!(is_new, "{} was created twice", object.name_any());
            }
            WatchEvent::Error(error) => return Err(kube::Error::Api(error).into()),
            _ => {}
        }
    }
    Ok(restored)
}
