//! Rendering of a chart with many small objects: `helm template`, `kubectl bundle render` and the
//! pod. The pod renders each new configuration of a BundleDeployment. The class requires an
//! approval that does not exist. Therefore the pod renders the chart and applies no object.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bundle_api::deployment::BundleDeployment;
use bundle_api::names::condition;
use bundle_core::diagnostic::codes;
use e2e::cluster::manifests;
use e2e::{Cluster, Tool, WebhookOptions, programs, tools};
use futures::stream::{StreamExt as _, TryStreamExt as _};
use kube::api::{WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::super::install::{self, median};
use super::super::run::{self, cost};
use super::super::table::Table;
use super::{NAMESPACE, Sizes};

/// Name of the chart, the class and the BundleDeployment.
const NAME: &str = "bench-chart";
const DEPLOYMENTS: &str = "/apis/core.rukpak.io/v1alpha1/bundledeployments";
/// Number of runs of each row.
const ROUNDS: usize = 9;
/// Maximum time without a change of the BundleDeployment.
const DEADLINE: Duration = Duration::from_secs(120);
/// Memory limit of the webhook: the minimum for charts if the PATH contains git and helm.
const MEMORY: &str = "352Mi";
const TEMPLATE: &str = r"{{- range $number := until (int .Values.count) }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: {{ $.Release.Name }}-{{ $number }}}
data: {number: {{ $number | quote }}, round: {{ $.Values.round | quote }}}
{{- end }}
";

/// Measures the rendering in alternating rounds.
pub(super) async fn measure(sizes: Sizes) -> Result<Table> {
    let cluster = Cluster::builder()
        .registries(1)
        .start()
        .await
        .context("cannot start a cluster to measure on")?;
    let commands = ChartCommands::new(&cluster, sizes.objects).await?;
    for command in [commands.helm(), commands.plugin()] {
        check(command, sizes.objects)?;
    }
    let options = WebhookOptions {
        source_check_interval: Duration::from_secs(3_600),
        flags: ["--memory-limit", MEMORY].map(str::to_owned).to_vec(),
        programs: vec![commands.helm_folder.clone()],
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await?;
    let client = cluster.client().await?;
    manifests::apply(&client, &[class()]).await?;
    // The plugin looks up helm in the folder of the cluster's tools.
    cluster.tool(Tool::Helm).await?;
    let reference = install::push(&cluster, &commands.chart, &format!("{NAME}:1.0.0")).await?;
    // The first rendering is not measured, because it includes the download.
    until_rendered(&client, create_request(&reference)?).await?;
    let mut seconds: [Vec<f64>; 3] = Default::default();
    for round in 1..=ROUNDS {
        seconds[0].push(cost(commands.helm())?.seconds);
        seconds[1].push(cost(commands.plugin())?.seconds);
        seconds[2].push(until_rendered(&client, configure_request(round)?).await?);
    }
    let [helm, plugin, pod] = seconds.map(median);
    let mut table = Table::new(&[
        &format!("chart of {} ConfigMaps", sizes.objects),
        &format!("s (median of {ROUNDS})"),
        "ratio to helm template",
    ]);
    for (title, seconds) in [
        ("helm template, Helm 4", helm),
        ("kubectl bundle render", plugin),
        ("pod, spec.config changed to chart rendered", pod),
    ] {
        table.row([
            title.to_owned(),
            format!("{seconds:.3}"),
            format!("{:.2}", seconds / helm),
        ]);
    }
    Ok(table)
}

/// The chart in a folder, and the commands that render this chart.
struct ChartCommands {
    chart: PathBuf,
    home: PathBuf,
    /// Folder that contains only helm.
    helm_folder: PathBuf,
    plugin: PathBuf,
}

impl ChartCommands {
    /// Writes a chart of `objects` ConfigMaps.
    async fn new(cluster: &Cluster, objects: usize) -> Result<Self> {
        let chart = cluster.folder().join("bench").join(NAME);
        fs_err::create_dir_all(chart.join("templates"))?;
        for (path, text) in [
            (
                "Chart.yaml",
                format!("apiVersion: v2\nname: {NAME}\nversion: 1.0.0\n"),
            ),
            ("values.yaml", format!("count: {objects}\nround: 0\n")),
            ("templates/all.yaml", TEMPLATE.to_owned()),
        ] {
            fs_err::write(chart.join(path), text)?;
        }
        let helm_folder = tokio::task::spawn_blocking(|| tools::folder(&[Tool::Helm]));
        Ok(Self {
            chart,
            home: cluster.folder().to_owned(),
            helm_folder: helm_folder
                .await
                .context("the thread that builds helm ended early")??,
            plugin: programs::get().await?.plugin.clone(),
        })
    }

    fn helm(&self) -> Command {
        let program = self.helm_folder.join(Tool::Helm.name());
        let line = format!("template {NAME} {}", self.chart_arguments());
        self.command(&program, &line)
    }

    fn plugin(&self) -> Command {
        let line = format!("render --name {NAME} {}", self.chart_arguments());
        self.command(&self.plugin, &line)
    }

    /// Returns the arguments that both commands have: the chart, and the namespace of the release.
    fn chart_arguments(&self) -> String {
        format!("{} --namespace default", self.chart.display())
    }

    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = run::command(program, &self.home, line);
        command.env("PATH", &self.helm_folder);
        command
    }
}

/// Runs a command that renders the chart, and checks the number of printed objects.
fn check(mut command: Command, objects: usize) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.matches("kind: ConfigMap").count();
    ensure!(
        output.status.success() && found == objects,
        "{command:?} printed {found} of {objects} objects:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Returns a class for charts that requires an approval.
fn class() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
        "metadata": {"name": NAME},
        "spec": {
            "provisioner": "core.rukpak.io/helm",
            "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
            "approval": {"mode": "Required", "by": "Anyone"},
        },
    })
}

/// Returns the request that creates the BundleDeployment of an image.
fn create_request(reference: &str) -> Result<http::Request<Vec<u8>>> {
    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": NAME},
        "spec": {
            "provisionerClassName": NAME,
            "targetNamespace": "default",
            "config": {"round": 0},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {
                    "provisionerClassName": NAME,
                    "source": {"type": "image", "image": {"ref": reference}},
                },
            },
        },
    });
    Ok(http::Request::post(DEPLOYMENTS)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&object)?)?)
}

/// Returns the request that changes the configuration. The pod has not rendered the chart with this
/// configuration before.
fn configure_request(round: usize) -> Result<http::Request<Vec<u8>>> {
    let patch = json!({"spec": {"config": {"round": round}}});
    Ok(http::Request::patch(format!("{DEPLOYMENTS}/{NAME}"))
        .header(http::header::CONTENT_TYPE, "application/merge-patch+json")
        .body(serde_json::to_vec(&patch)?)?)
}

/// Sends a request that creates or changes the BundleDeployment. Returns the seconds until the
/// status reports that the approval is missing. The pod checks the approval after the rendering.
async fn until_rendered(client: &Client, request: http::Request<Vec<u8>>) -> Result<f64> {
    let began = Instant::now();
    let written: BundleDeployment = client.request(request).await?;
    let generation = written.metadata.generation;
    let version = written.metadata.resource_version.unwrap_or_default();
    let api: Api<BundleDeployment> = Api::all(client.clone());
    let only = WatchParams::default().fields(&format!("metadata.name={NAME}"));
    let mut events = api.watch(&only, &version).await?.boxed();
    let mut last = "no status".to_owned();
    loop {
        let event = timeout(DEADLINE, events.try_next())
            .await
            .with_context(|| format!("the pod has not rendered the chart: {last}"))??;
        let event = event.context("the watch of the BundleDeployment ended")?;
        if let WatchEvent::Modified(object) = event
            && let Some(message) = ready_message(&object, generation)
        {
            if message.contains(codes::install::NOT_APPROVED.id) {
                return Ok(began.elapsed().as_secs_f64());
            }
            message.clone_into(&mut last);
        }
    }
}

/// Returns the message of the condition `Ready` if the condition describes this generation.
fn ready_message(object: &BundleDeployment, generation: Option<i64>) -> Option<&str> {
    let mut conditions = object.status.as_ref()?.conditions.iter();
    let ready = conditions.find(|found| found.type_ == condition::READY)?;
    (ready.observed_generation == generation).then_some(ready.message.as_str())
}
