//! Duration and requests of restoring one changed object, for bundles with 10, 1,000 and 10,000
//! ConfigMaps. `e2e` starts the programs.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::{Cluster, WebhookOptions};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::install;
use super::table::Table;

const OBJECTS: [usize; 3] = [10, 1_000, 10_000];
/// Number of objects that are changed in each bundle, one after the other.
const ROUNDS: u32 = 5;
const DEADLINE: Duration = Duration::from_secs(60);
/// Time without requests of the pod after which a restore is complete.
const QUIET: Duration = Duration::from_secs(3);
/// Memory limit for the bundle with 10,000 objects, which exceeds the default limit.
const MEMORY: &str = "512Mi";
const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";

/// Numbers of requests of the pod, by purpose.
#[derive(Default)]
pub(super) struct Requests {
    /// Number of reads of objects of the bundle.
    pub(super) reads: u32,
    /// Number of dry runs of applies, as the requester.
    pub(super) dry_runs: u32,
    pub(super) applies: u32,
    pub(super) reviews: u32,
    pub(super) others: u32,
}

pub(super) async fn measure() -> Result<Table> {
    let cluster = Cluster::builder()
        .registries(1)
        .audit(true)
        .start()
        .await
        .context("cannot start a cluster to measure on")?;
    let options = WebhookOptions {
        source_check_interval: Duration::from_secs(600),
        flags: ["--memory-limit", MEMORY].map(str::to_owned).to_vec(),
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await?;
    let mut table = Table::new(&[
        "objects",
        "s (median of 5)",
        "reads",
        "dry runs",
        "applies",
        "access reviews",
        "other requests",
    ]);
    for count in OBJECTS {
        let name = format!("restore-{count}");
        let reference = install::publish(&cluster, &name, count).await?;
        cluster
            .kubectl_bundle(["deploy", &name, &reference, "--wait"])
            .await?
            .success()?;
        quiet(&cluster).await?;
        let before = cluster.audit()?.len();
        let api: Api<ConfigMap> = Api::namespaced(cluster.client().await?, &name);
        let mut times = Vec::new();
        for number in 0..ROUNDS {
            let name = format!("item-{number:05}");
            let restored = timeout(DEADLINE, restore(&api, &name)).await;
            times.push(restored.context("an object was not restored")??);
        }
        quiet(&cluster).await?;
        times.sort_by(f64::total_cmp);
        let requests = requests(&cluster.audit()?[before..], &name);
        let each = |total: u32| format!("{:.1}", f64::from(total) / f64::from(ROUNDS));
        table.row([
            count.to_string(),
            format!("{:.3}", times[times.len() / 2]),
            each(requests.reads),
            each(requests.dry_runs),
            each(requests.applies),
            each(requests.reviews),
            each(requests.others),
        ]);
    }
    Ok(table)
}

/// Changes an object. Returns the time until the object is restored, in seconds.
async fn restore(api: &Api<ConfigMap>, name: &str) -> Result<f64> {
    let installed = api.get(name).await?.data;
    let patch = Patch::Merge(json!({"data": {"text": "changed"}}));
    let changed = api.patch(name, &PatchParams::default(), &patch).await?;
    let began = Instant::now();
    let version = changed.resource_version().unwrap_or_default();
    let only = WatchParams::default().fields(&format!("metadata.name={name}"));
    let mut events = api.watch(&only, &version).await?.boxed();
    while let Some(event) = events.try_next().await? {
        if let WatchEvent::Modified(object) = event
            && object.data == installed
        {
            return Ok(began.elapsed().as_secs_f64());
        }
    }
    bail!("the watch of {name} ended")
}

/// Waits until the pod sends only its periodic requests.
pub(super) async fn quiet(cluster: &Cluster) -> Result<()> {
    let mut ticks = tokio::time::interval(QUIET);
    let mut before = usize::MAX;
    loop {
        ticks.tick().await;
        let now = cluster
            .audit()?
            .iter()
            .filter(|event| counts(event))
            .count();
        if now == before {
            return Ok(());
        }
        before = now;
    }
}

/// Returns `true` if the pod sent the request, and the request is neither a watch nor a request for
/// the lease.
fn counts(event: &Value) -> bool {
    event["user"]["username"] == POD
        && event["verb"] != "watch"
        && event["objectRef"]["resource"] != "leases"
}

/// Counts the requests of the pod. The objects of the bundle are ConfigMaps in `namespace`.
pub(super) fn requests(events: &[Value], namespace: &str) -> Requests {
    let mut requests = Requests::default();
    for event in events.iter().filter(|event| counts(event)) {
        let object = &event["objectRef"];
        let is_content = object["namespace"] == namespace && object["resource"] == "configmaps";
        let is_dry_run = event["requestURI"]
            .as_str()
            .is_some_and(|uri| uri.contains("dryRun=All"));
        let sort = match event["verb"].as_str() {
            Some("get") if is_content => &mut requests.reads,
            Some("patch") if is_content && is_dry_run => &mut requests.dry_runs,
            Some("patch") if is_content => &mut requests.applies,
            _ if object["resource"] == "subjectaccessreviews" => &mut requests.reviews,
            _ => &mut requests.others,
        };
        *sort += 1;
    }
    requests
}
