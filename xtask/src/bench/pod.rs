//! The chart on a node: time to ready, memory of leader and follower, time without a leader, and
//! reviews per second. `e2e::release` installs the chart.
#![expect(
    clippy::disallowed_methods,
    reason = "the names are those of the benchmark itself"
)]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::image::{Platform, StaticBuild, WebhookImage, build_webhook};
use e2e::release::{NAMESPACE, NodeRelease, RELEASE};
use e2e::{programs, wait};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::DeleteParams;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::table::Table;

const LONG: Duration = Duration::from_secs(180);
/// Time without work before the idle memory is measured.
const IDLE: Duration = Duration::from_secs(20);
const IN_FLIGHT: usize = 50;
const REVIEWS: usize = 2_000;
const STARTS: usize = 50;
/// Name of the object that the leader restores.
const OBJECT: &str = "bench-pod";

/// Measures with a static program of `profile`.
pub(super) async fn measure(profile: &str) -> Result<Table> {
    let build = StaticBuild {
        platform: Platform::of_this_machine()?,
        profile: profile.to_owned(),
    };
    let platform = build.platform;
    let program = tokio::task::spawn_blocking(move || build_webhook(&build))
        .await
        .context("the thread that builds the program ended early")??;
    let node = NodeRelease::start(&WebhookImage::new(program, platform)).await?;
    let mut table = Table::new(&["", "measured", "aim"]);
    let mut row = |name: &str, measured: String, aim: &str| {
        table.row([name.to_owned(), measured, aim.to_owned()]);
    };
    row(
        "`helm install` to the first admitted review",
        seconds(first_review(&node).await?),
        "-",
    );
    node.release("upgrade", &node.values).await?;
    row(
        "start of a container to ready",
        milliseconds(start(&node).await?),
        "300 ms",
    );
    let (leader, follower) = memory(&node).await?;
    row("leader, resident, idle", leader, "15 MiB");
    row("follower, resident, idle", follower, "12 MiB");
    install(&node).await?;
    for (name, flags, aim) in [
        (
            "pod of the leader deleted by SIGKILL",
            "--force --grace-period=0",
            "17 s",
        ),
        ("pod of the leader deleted", "--wait=false", "1 s"),
    ] {
        let time = failover(&node, flags).await?;
        row(&format!("{name}, to the next restore"), seconds(time), aim);
    }
    for replicas in [1, 2] {
        let rate = reviews(&node, replicas).await?;
        row(
            &format!("reviews per second, {replicas} replicas"),
            format!("{rate:.0}"),
            "-",
        );
    }
    row(
        &format!("completion of the flags of `deploy`, median of {STARTS}"),
        milliseconds(completion().await?),
        "15 ms",
    );
    Ok(table)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

fn milliseconds(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1_000.0)
}

/// Returns a ProvisionerClass. Its review needs no other object.
fn class(number: usize) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "ProvisionerClass",
        "metadata": {"name": format!("bench-{number}")},
        "spec": {
            "provisioner": "core.rukpak.io/plain",
            "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
        },
    })
}

async fn review(client: &Client, number: usize) -> Result<Duration> {
    let request =
        http::Request::post("/apis/core.rukpak.io/v1alpha1/provisionerclasses?dryRun=All")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(serde_json::to_vec(&class(number))?)?;
    let began = Instant::now();
    client.request::<Value>(request).await?;
    Ok(began.elapsed())
}

/// Installs the release, and returns the time until a review is admitted.
async fn first_review(node: &NodeRelease) -> Result<Duration> {
    let client = node.cluster.client().await?;
    let registration = format!("validatingwebhookconfiguration/{RELEASE}");
    let began = Instant::now();
    let admitted = async {
        wait::until_true(LONG, "a review is admitted", || async {
            // Without the registration, the API server requests no review.
            let found = node.cluster.kubectl(["get", &registration]).await?;
            Ok(found.is_success() && review(&client, 0).await.is_ok())
        })
        .await?;
        anyhow::Ok(began.elapsed())
    };
    let installed = node.release("install", &node.values);
    let (installed, admitted) = tokio::join!(installed, admitted);
    installed?;
    admitted
}

async fn until_ready(node: &NodeRelease, replicas: usize) -> Result<()> {
    wait::until_true(LONG, "the replicas are ready", || async {
        let pods = node.pods().await?;
        let is_ready = |pod: &Pod| {
            let conditions = pod
                .status
                .as_ref()
                .and_then(|status| status.conditions.as_ref());
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|one| one.type_ == "Ready" && one.status == "True")
            })
        };
        Ok(pods.len() == replicas && pods.iter().all(is_ready))
    })
    .await
}

/// Kills the container of the follower. Returns the time from the start of its replacement until
/// `/readyz` succeeds.
async fn start(node: &NodeRelease) -> Result<Duration> {
    until_ready(node, 2).await?;
    let leader = node.holder().await?;
    let pods = node.pods().await?;
    let pod = pods
        .into_iter()
        .find(|pod| pod.metadata.name != leader)
        .context("there is no follower")?;
    let name = pod.metadata.name.unwrap_or_default();
    let address = pod.status.and_then(|status| status.pod_ip);
    let address = format!("{}:8080", address.unwrap_or_default());
    let killed = node.container(&name).await?;
    killed.kill()?;
    wait::until_true(LONG, "the container has ended", || async {
        Ok(killed.age().is_err())
    })
    .await?;
    let began = Instant::now();
    while !is_ready(&address) {
        ensure!(began.elapsed() < LONG, "{name} is not ready");
    }
    let ready = Instant::now();
    wait::until(LONG, "the API server knows the container", || async {
        let age = node.container(&name).await?.age()?;
        Ok(Some(age.saturating_sub(ready.elapsed())))
    })
    .await
}

/// Returns `true` if `/readyz` succeeds.
fn is_ready(address: &str) -> bool {
    let page = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: pod\r\n\r\n")?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        Ok(page)
    };
    page().is_ok_and(|page| page.starts_with("HTTP/1.1 200"))
}

/// Returns the memory of the leader and of the follower.
async fn memory(node: &NodeRelease) -> Result<(String, String)> {
    until_ready(node, 2).await?;
    tokio::time::sleep(IDLE).await;
    let leader = node.holder().await?;
    let (mut of_leader, mut of_follower) = (0, 0);
    for pod in node.pods().await? {
        let name = pod.metadata.name.unwrap_or_default();
        let size = node.container(&name).await?.resident_memory()?;
        if leader.as_ref() == Some(&name) {
            of_leader = size;
        } else {
            of_follower = size;
        }
    }
    let mib = |kib: u64| format!("{}.{} MiB", kib / 1024, kib % 1024 * 10 / 1024);
    Ok((mib(of_leader), mib(of_follower)))
}

/// Installs a bundle with one ConfigMap.
async fn install(node: &NodeRelease) -> Result<()> {
    let text = format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {OBJECT}, namespace: default}}\n"
    );
    let content = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": OBJECT, "namespace": NAMESPACE},
        "data": {"all.yaml": text},
    });
    let source = json!({"type": "configMaps", "configMaps": [
        {"configMap": {"name": OBJECT}, "path": "manifests"},
    ]});
    let class = "core-rukpak-io-plain";
    let deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": OBJECT},
        "spec": {"provisionerClassName": class, "template": {"spec": {
            "provisionerClassName": class, "source": source,
        }}},
    });
    let client = node.cluster.client().await?;
    e2e::cluster::manifests::apply(&client, &[content, deployment]).await?;
    until_restored(node).await
}

async fn until_restored(node: &NodeRelease) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(node.cluster.client().await?, "default");
    wait::until_true(LONG, "the ConfigMap exists", || async {
        Ok(maps.get_opt(OBJECT).await?.is_some())
    })
    .await
}

/// Deletes the pod of the leader and an object of a bundle, and returns the time until the object
/// is restored.
async fn failover(node: &NodeRelease, flags: &str) -> Result<Duration> {
    until_ready(node, 2).await?;
    let leader = wait::until(LONG, "a pod holds the lease", || node.holder()).await?;
    let delete = ["delete", "pod", &leader, "--namespace", NAMESPACE];
    let began = Instant::now();
    let deleted = node
        .cluster
        .kubectl(delete.into_iter().chain(flags.split(' ')))
        .await?;
    deleted.success()?;
    let maps: Api<ConfigMap> = Api::namespaced(node.cluster.client().await?, "default");
    maps.delete(OBJECT, &DeleteParams::default()).await?;
    until_restored(node).await?;
    Ok(began.elapsed())
}

/// Returns the number of reviews per second.
async fn reviews(node: &NodeRelease, replicas: usize) -> Result<f64> {
    let count = format!("--replicas={replicas}");
    let deployment = format!("deployment/{RELEASE}");
    let scaled = ["scale", &deployment, "--namespace", NAMESPACE, &count];
    node.cluster.kubectl(scaled).await?.success()?;
    until_ready(node, replicas).await?;
    let client = node.cluster.client().await?;
    let mut rate = 0.0;
    // The first round opens connections.
    for _ in 0..2 {
        let began = Instant::now();
        let all: Vec<Duration> = stream::iter(0..REVIEWS)
            .map(|number| review(&client, number))
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await?;
        rate = f64::from(u32::try_from(all.len())?) / began.elapsed().as_secs_f64();
    }
    Ok(rate)
}

/// Returns the median time of a completion of flags.
async fn completion() -> Result<Duration> {
    let programs = programs::get().await?;
    let mut times = Vec::with_capacity(STARTS);
    for _ in 0..STARTS {
        let began = Instant::now();
        let status = Command::new(&programs.plugin)
            .args(["__complete", "--", "deploy", "--"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .context("cannot start the plugin")?;
        ensure!(status.success(), "a completion ended with {status}");
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times[STARTS / 2])
}
