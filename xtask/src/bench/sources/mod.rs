//! Sources of content: one large transfer of each, compared with git and curl, the rendering of a
//! chart, compared with helm, and many Bundles of two requesters at once. `e2e` starts the servers.

mod chart;
mod fixtures;
mod many;
mod memory;
mod single;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use e2e::{Cluster, Webhook, WebhookOptions, wait};
use kube::Client;
use serde_json::{Value, json};

use super::table::Table;
use fixtures::Fixtures;

/// Class that allows sources on loopback.
const CLASS: &str = "bench-sources";
const NAMESPACE: &str = "bundle-system";
/// Name of the ServiceAccount of each requester.
const ACCOUNT: &str = "bench";
const DEADLINE: Duration = Duration::from_secs(1_800);
/// Memory limit of the webhook: the minimum for git sources.
const MEMORY: &str = "192Mi";

/// Sizes of the measurements.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Number of commits of the repository.
    commits: usize,
    /// Size of the history of the repository, in MiB.
    history: usize,
    /// Size of an archive and of a layer, in MiB. The limit is 128 MiB for an archive, for a layer,
    /// and for all files of a bundle together.
    archive: usize,
    /// Number of layers of the image.
    layers: usize,
    /// Number of Bundles of the first requester.
    bundles: usize,
    /// Number of rounds of the single transfers.
    rounds: usize,
    /// Number of objects of the chart.
    objects: usize,
}

impl Sizes {
    pub(super) fn new(small: bool) -> Self {
        if small {
            Self {
                commits: 20,
                history: 2,
                archive: 2,
                layers: 2,
                bundles: 8,
                rounds: 1,
                objects: 10,
            }
        } else {
            Self {
                commits: 10_000,
                history: 200,
                archive: 100,
                layers: 1,
                bundles: 1_000,
                rounds: 3,
                objects: 300,
            }
        }
    }
}

pub(super) async fn measure(sizes: Sizes) -> Result<Vec<(&'static str, Table)>> {
    let [single, many] = transfers(sizes).await?;
    Ok(vec![
        ("sources", single),
        ("sources-charts", chart::measure(sizes).await?),
        ("sources-at-once", many),
    ])
}

/// Measures the transfers, on their own cluster. Returns the table of the single transfers, and the
/// table of many transfers at once.
async fn transfers(sizes: Sizes) -> Result<[Table; 2]> {
    let cluster = Cluster::builder()
        .registries(1)
        .start()
        .await
        .context("cannot start a cluster to measure on")?;
    let fixtures = Fixtures::new(&cluster, sizes).await?;
    let options = WebhookOptions {
        source_check_interval: Duration::from_secs(3_600),
        flags: vec![
            "--memory-limit".to_owned(),
            MEMORY.to_owned(),
            "--registries-conf".to_owned(),
            fixtures.registries_conf()?,
        ],
        ..WebhookOptions::default()
    };
    let webhook = cluster.start_webhook(options).await?;
    let bench = Bench {
        client: cluster.client().await?,
        cluster: &cluster,
        webhook: &webhook,
        fixtures: &fixtures,
        sizes,
    };
    bench.prepare().await?;
    let single = single::measure(&bench).await?;
    let many = many::measure(&bench).await?;
    Ok([single, many])
}

/// The cluster and the webhook of the measurements, and the content of the sources.
struct Bench<'a> {
    cluster: &'a Cluster,
    webhook: &'a Webhook,
    fixtures: &'a Fixtures,
    client: Client,
    sizes: Sizes,
}

impl Bench<'_> {
    /// Creates the class, the Secret of the repository and the permissions of two requesters.
    async fn prepare(&self) -> Result<()> {
        let class = json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
            "metadata": {"name": CLASS},
            "spec": {
                "provisioner": "core.rukpak.io/plain",
                "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
                "authorization": "Class",
                "sources": {"privateAddresses": "Allow"},
            },
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": CLASS},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
            "subjects": many::REQUESTERS.map(|name| {
                json!({"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name})
            }),
        });
        let accounts = many::REQUESTERS.map(|name| {
            json!({
                "apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": ACCOUNT, "namespace": name},
            })
        });
        // The ServiceAccounts of one namespace count as one requester.
        let namespaces = many::REQUESTERS.map(
            |name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
        let mut objects = namespaces.to_vec();
        objects.extend([class, self.fixtures.secret()?, binding]);
        objects.extend(accounts);
        e2e::cluster::manifests::apply(&self.client, &objects).await
    }

    /// Creates a Bundle as the ServiceAccount of the namespace `requester`.
    async fn create(&self, name: &str, source: &Value, requester: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
            "metadata": {"name": name},
            "spec": {"provisionerClassName": CLASS, "source": source},
        });
        let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles")
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(
                "Impersonate-User",
                format!("system:serviceaccount:{requester}:{ACCOUNT}"),
            )
            .body(serde_json::to_vec(&object)?)?;
        self.client.request::<Value>(request).await?;
        Ok(())
    }

    /// Deletes a Bundle, and waits until it no longer exists.
    async fn delete(&self, name: &str) -> Result<()> {
        let line = ["delete", "bundle", name, "--timeout=60s"];
        self.cluster.kubectl(line).await?.success().map(drop)
    }

    /// Waits until the Bundle is unpacked, and returns the seconds since `began`.
    async fn until_unpacked(&self, name: &str, began: Instant) -> Result<f64> {
        let what = format!("Bundle {name} is unpacked");
        wait::until_true(DEADLINE, &what, || self.is_unpacked(name)).await?;
        Ok(began.elapsed().as_secs_f64())
    }

    /// Waits until the Bundle waits for its upload.
    async fn until_waiting(&self, name: &str) -> Result<()> {
        let path = format!("/apis/core.rukpak.io/v1alpha1/bundles/{name}");
        wait::until_true(DEADLINE, &format!("Bundle {name} waits"), || async {
            let request = http::Request::get(&path).body(Vec::new())?;
            let bundle: Value = self.client.request(request).await?;
            Ok(bundle["status"]["conditions"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["reason"] == "UnpackPending")))
        })
        .await
    }

    /// Returns a token of the ServiceAccount of the namespace `requester`. Only the requester of a Bundle can upload
    /// its content.
    async fn upload_token(&self, requester: &str) -> Result<String> {
        let line = ["create", "token", ACCOUNT, "-n", requester];
        let token = self.cluster.kubectl(line).await?.success()?;
        Ok(token.trim().to_owned())
    }

    /// Returns a command that uploads a file. The command uses HTTP/1.1, because older versions of
    /// curl do not show an early error response to an upload over HTTP/2.
    fn upload(&self, token: &str, bundle: &str, file: &Path) -> Command {
        let address = self.webhook.content_address();
        let mut command = Command::new("curl");
        command
            .args(["-sS", "--fail-with-body", "--http1.1", "--insecure"])
            .args(["--retry", "20", "-T"])
            .arg(file)
            .args(["-H", &format!("Authorization: Bearer {token}")])
            .arg(format!("https://{address}/uploads/{bundle}.tgz"));
        command
    }

    /// Returns true if the Bundle is unpacked.
    async fn is_unpacked(&self, name: &str) -> Result<bool> {
        let path = format!("/apis/core.rukpak.io/v1alpha1/bundles/{name}");
        let request = http::Request::get(path).body(Vec::new())?;
        is_unpacked(&self.client.request(request).await?)
    }
}

fn is_unpacked(bundle: &Value) -> Result<bool> {
    let status = &bundle["status"];
    if status["phase"] == "Failing" {
        bail!("{}: {}", bundle["metadata"]["name"], status["conditions"]);
    }
    Ok(status["phase"] == "Unpacked")
}
