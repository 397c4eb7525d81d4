//! Many BundleDeployments of four objects each, compared with the library of Flux, and the cost of
//! the pod while the BundleDeployments are idle.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::{Cluster, Webhook};
use futures::stream::{self, TryStreamExt as _};
use kube::Client;
use serde_json::{Value, json};

use super::super::run::{self, Cost, mebibytes};
use super::super::table::Table;
use super::Sizes;

/// Namespace of the objects, and of the content of the BundleDeployments.
const NAMESPACE: &str = "bench-many";
const SYSTEM_NAMESPACE: &str = "bundle-system";
const CLASS: &str = "core-rukpak-io-plain";
const OBJECTS: usize = 4;
/// Number of objects of one requester that a pod with the default memory limit accepts.
const DEFAULT_OBJECTS: usize = 8_192;
/// Number of objects of one requester for each MiB of the memory limit. The pod accepts 64.
const OBJECTS_PER_MEBIBYTE: usize = 50;
const DEPLOYMENTS: &str = "/apis/core.rukpak.io/v1alpha1/bundledeployments";
/// Maximum number of concurrent creates.
const IN_FLIGHT: usize = 16;
/// Time between two reads of a BundleDeployment.
const POLL: Duration = Duration::from_millis(500);
/// Maximum time until all BundleDeployments are installed.
const DEADLINE: Duration = Duration::from_secs(3_600);
/// Time after the last installation, in which the pod finishes its work.
const SETTLE: Duration = Duration::from_secs(15);
/// Clock ticks in a second, the unit of `/proc/PID/stat` on Linux.
const TICKS: f64 = 100.0;

/// Returns the tables of the installation and of the idle pod.
pub(super) async fn measure(sizes: &Sizes) -> Result<[(&'static str, Table); 2]> {
    let cluster = super::start(false).await?;
    let limit = memory_limit(sizes.deployments.iter().sum());
    let flags = limit.iter().flat_map(|limit| ["--memory-limit", limit]);
    let webhook = super::start_webhook(&cluster, &flags.collect::<Vec<_>>()).await?;
    let flux_apply = cluster.flux_apply()?;
    let client = cluster.client().await?;
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
    create(&client, "/api/v1/namespaces", &namespace).await?;
    let mut installed = Table::new(&["4 objects each", "sets", "s", "sets per s", "peak MiB"]);
    let mut idle = Table::new(&[
        "BundleDeployments",
        "objects",
        "resident MiB",
        "CPU, % of one core",
    ]);
    idle.row(idle_row(&webhook, sizes, 0).await?);
    let mut total = 0;
    for &count in &sizes.deployments {
        let flux = flux(&cluster, &flux_apply, count)?;
        installed.row(cost_row("flux-apply", count, flux));
        let seconds = deployments(&client, count).await?;
        let mebibytes = mebibytes(run::peak_kib(webhook.pid()?).unwrap_or_default());
        let cost = Cost { seconds, mebibytes };
        installed.row(cost_row("BundleDeployments", count, cost));
        total += count;
        idle.row(idle_row(&webhook, sizes, total).await?);
    }
    Ok([("reconcile-many", installed), ("reconcile-idle", idle)])
}

#[expect(clippy::cast_precision_loss, reason = "there are at most 10,000 sets")]
fn cost_row(title: &str, count: usize, cost: Cost) -> [String; 5] {
    [
        title.to_owned(),
        count.to_string(),
        format!("{:.1}", cost.seconds),
        format!("{:.1}", count as f64 / cost.seconds),
        format!("{:.0}", cost.mebibytes),
    ]
}

/// Returns the memory limit of the pod; `None` if the default limit is sufficient for the objects
/// of one requester.
fn memory_limit(deployments: usize) -> Option<String> {
    let objects = deployments * OBJECTS;
    (objects > DEFAULT_OBJECTS).then(|| format!("{}Mi", objects.div_ceil(OBJECTS_PER_MEBIBYTE)))
}

/// Returns the manifests of the four objects of a set.
fn manifests(set: &str) -> Result<String> {
    let mut text = String::new();
    for (kind, fields) in [
        ("ConfigMap", "data: {text: a small object}"),
        ("Secret", "stringData: {text: a small object}"),
        ("ServiceAccount", "automountServiceAccountToken: false"),
        ("Service", "spec: {clusterIP: None, ports: [{port: 80}]}"),
    ] {
        write!(
            text,
            "---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: {set}, namespace: {NAMESPACE}}}\n{fields}\n"
        )?;
    }
    Ok(text)
}

/// Applies `count` sets of objects with the library of Flux.
fn flux(cluster: &Cluster, program: &Path, count: usize) -> Result<Cost> {
    let folder = cluster.folder().join(format!("bench/flux-{count}"));
    for number in 0..count {
        let set = format!("flux-{count}-{number}");
        let folder = folder.join(&set);
        fs_err::create_dir_all(&folder)?;
        fs_err::write(folder.join("all.yaml"), manifests(&set)?)?;
    }
    let line = format!(
        "-kubeconfig {} {}",
        cluster.kubeconfig().display(),
        folder.display()
    );
    run::cost(run::command(program, cluster.folder(), &line))
}

/// Creates `count` BundleDeployments. Returns the seconds from the first create until all
/// BundleDeployments are installed. The ConfigMaps with their content are created before the
/// measurement.
async fn deployments(client: &Client, count: usize) -> Result<f64> {
    let prefix = format!("bundle-{count}-");
    create_all(client, count, |number| {
        let name = format!("{prefix}{number}");
        let content = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
            "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
            "data": {"all.yaml": manifests(&name)?},
        });
        let path = format!("/api/v1/namespaces/{SYSTEM_NAMESPACE}/configmaps");
        Ok((path, content))
    })
    .await?;
    let began = Instant::now();
    create_all(client, count, |number| {
        let name = format!("{prefix}{number}");
        let source = json!({"type": "configMaps", "configMaps": [
            {"configMap": {"name": name}, "path": "manifests"},
        ]});
        let deployment = json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
            "metadata": {"name": name},
            "spec": {"provisionerClassName": CLASS, "template": {"spec": {
                "provisionerClassName": CLASS, "source": source,
            }}},
        });
        Ok((DEPLOYMENTS.to_owned(), deployment))
    })
    .await?;
    until_installed(client, &prefix, count).await?;
    Ok(began.elapsed().as_secs_f64())
}

async fn create_all(
    client: &Client,
    count: usize,
    object: impl Fn(usize) -> Result<(String, Value)>,
) -> Result<()> {
    stream::iter((0..count).map(object))
        .try_for_each_concurrent(IN_FLIGHT, async |(path, object)| {
            create(client, &path, &object).await
        })
        .await
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(object)?)?;
    client
        .request::<Value>(request)
        .await
        .with_context(|| format!("cannot create {}", object["metadata"]["name"]))?;
    Ok(())
}

/// Waits until `count` BundleDeployments are installed. Reads one BundleDeployment at a time: lists
/// of all BundleDeployments would use much of the CPU time of the API server.
async fn until_installed(client: &Client, prefix: &str, count: usize) -> Result<()> {
    let began = Instant::now();
    for number in 0..count {
        let path = format!("{DEPLOYMENTS}/{prefix}{number}");
        loop {
            let request = http::Request::get(path.as_str()).body(Vec::new())?;
            if is_installed(&client.request(request).await?) {
                break;
            }
            ensure!(
                began.elapsed() < DEADLINE,
                "{prefix}{number} is not installed after {} s",
                DEADLINE.as_secs()
            );
            tokio::time::sleep(POLL).await;
        }
    }
    Ok(())
}

fn is_installed(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Installed" && condition["status"] == "True")
}

/// Returns the row for the idle pod.
#[expect(clippy::cast_precision_loss, reason = "clock ticks of one process")]
async fn idle_row(webhook: &Webhook, sizes: &Sizes, deployments: usize) -> Result<[String; 4]> {
    tokio::time::sleep(SETTLE).await;
    let pid = webhook.pid()?;
    let before = cpu_ticks(pid)?;
    let began = Instant::now();
    tokio::time::sleep(sizes.idle).await;
    let ticks = cpu_ticks(pid)?.saturating_sub(before) as f64;
    let share = ticks / TICKS / began.elapsed().as_secs_f64();
    Ok([
        deployments.to_string(),
        (deployments * OBJECTS).to_string(),
        format!("{:.1}", mebibytes(webhook.rss_kib()?)),
        format!("{:.2}", share * 100.0),
    ])
}

/// Returns the CPU time of a process in clock ticks.
fn cpu_ticks(pid: u32) -> Result<u64> {
    let text = fs_err::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field, the name of the program, ends with the last `)`. User and system time are
    // the fields 14 and 15.
    let fields = text.rsplit_once(')').map(|(_, rest)| rest);
    let mut fields = fields.unwrap_or_default().split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    let (user, system) = next()
        .zip(next())
        .context("/proc/PID/stat has no processor time")?;
    Ok(user + system)
}
