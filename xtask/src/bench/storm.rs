//! Concurrent changes of installed objects by another field manager, and the time until each object
//! is restored. `e2e` starts the programs.
#![expect(clippy::disallowed_methods, reason = "the benchmark chooses all names")]

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::{Cluster, WebhookOptions};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use tokio::time::{interval, timeout};

use super::install;
use super::table::Table;

const NAME: &str = "storm";
/// Number of objects. Each object is changed once.
const OBJECTS: u32 = 1_000;
/// Duration of the changes.
const STORM: Duration = Duration::from_secs(10);
/// Maximum number of concurrent changes.
const IN_FLIGHT: usize = 16;
const DEADLINE: Duration = Duration::from_mins(2);

type Data = Option<BTreeMap<String, String>>;

pub(super) async fn measure(cluster: &Cluster) -> Result<Table> {
    let _webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    let reference = install::publish(cluster, NAME, OBJECTS as usize).await?;
    cluster
        .kubectl_bundle(["deploy", NAME, &reference, "--wait"])
        .await?
        .success()?;
    let api: Api<ConfigMap> = Api::namespaced(cluster.client().await?, NAME);
    let listed = api.list(&ListParams::default()).await?;
    let version = listed.metadata.resource_version.unwrap_or_default();
    let installed: HashMap<String, Data> = listed
        .items
        .into_iter()
        .map(|object| (object.name_any(), object.data))
        .filter(|(name, _)| name.starts_with("item-"))
        .collect();
    if installed.len() != OBJECTS as usize {
        bail!("{} objects are installed, not {OBJECTS}", installed.len());
    }
    let names: Vec<String> = installed.keys().cloned().collect();
    let restored = tokio::spawn(timeout(DEADLINE, restored(api.clone(), version, installed)));
    let changed = changes(&api, names).await?;
    let restored = restored.await?.context("not every object was restored")??;
    table(&changed, &restored)
}

/// Changes each object once, evenly distributed over the duration. Returns the time of each change.
async fn changes(api: &Api<ConfigMap>, names: Vec<String>) -> Result<HashMap<String, Instant>> {
    let ticks = stream::unfold(interval(STORM / OBJECTS), |mut ticks| async {
        ticks.tick().await;
        Some(((), ticks))
    });
    let patch = Patch::Merge(json!({"data": {"text": "changed"}}));
    let change = async |name: String| {
        api.patch(&name, &PatchParams::default(), &patch).await?;
        Ok::<_, kube::Error>((name, Instant::now()))
    };
    let changed = stream::iter(names)
        .zip(ticks)
        .map(|(name, ())| change(name));
    Ok(changed.buffer_unordered(IN_FLIGHT).try_collect().await?)
}

/// Watches the objects until each object was changed and restored. Returns the time of each
/// restore.
async fn restored(
    api: Api<ConfigMap>,
    mut version: String,
    installed: HashMap<String, Data>,
) -> Result<HashMap<String, Instant>> {
    let mut restored = HashMap::new();
    while restored.len() < installed.len() {
        let mut events = api.watch(&WatchParams::default(), &version).await?.boxed();
        while let Some(event) = events.try_next().await? {
            let (WatchEvent::Added(object) | WatchEvent::Modified(object)) = event else {
                continue;
            };
            version = object.resource_version().unwrap_or_default();
            let name = object.name_any();
            if installed.get(&name) == Some(&object.data) {
                restored.insert(name, Instant::now());
            } else {
                restored.remove(&name);
            }
            if restored.len() == installed.len() {
                break;
            }
        }
    }
    Ok(restored)
}

fn table(changed: &HashMap<String, Instant>, restored: &HashMap<String, Instant>) -> Result<Table> {
    let first = changed.values().min().context("nothing was changed")?;
    let last = changed.values().max().context("nothing was changed")?;
    let since = |begin: &dyn Fn(&str) -> Instant| {
        let times = restored.iter();
        let mut times: Vec<f64> = times
            .map(|(name, time)| time.saturating_duration_since(begin(name)).as_secs_f64())
            .collect();
        times.sort_by(f64::total_cmp);
        times
    };
    let own = since(&|name| changed.get(name).copied().unwrap_or(*last));
    let after = since(&|_| *last);
    let head = format!(
        "{OBJECTS} changes in {:.1} s",
        last.duration_since(*first).as_secs_f64()
    );
    let mut table = Table::new(&[&head, "p50 s", "p99 s", "longest s", "aim"]);
    for (row, times, aim) in [
        ("from the change of an object until it is restored", own, ""),
        (
            "from the last change until an object is restored",
            after,
            "p99 1 s",
        ),
    ] {
        let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
        table.row([
            row.to_owned(),
            format!("{:.3}", at(50)),
            format!("{:.3}", at(99)),
            format!("{:.3}", at(100)),
            aim.to_owned(),
        ]);
    }
    Ok(table)
}
