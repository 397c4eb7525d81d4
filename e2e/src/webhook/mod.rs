//! `bundle-webhook` as a process on the host: deployed with its own manifests, run as its own
//! ServiceAccount, killed and restarted on request.

mod existing_cluster;
pub mod peer;
mod product;
mod shared;

use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::manifests;
use crate::host::janitor::Janitor;
use crate::host::memory_limit::MemoryLimit;
use crate::host::plain_http;
use crate::host::ports;
use crate::host::process::Process;
use crate::{programs, wait};

use product::Product;

pub use shared::{SharedCluster, shared};

/// Namespace of the ServiceAccount and the Deployment in the manifests.
pub const NAMESPACE: &str = "bundle-system";
/// Namespace of the pod's keys and records in the manifests.
pub const STATE_NAMESPACE: &str = "bundle-system-state";
const SERVICE_ACCOUNT: &str = "bundle-webhook";

const READY: Duration = Duration::from_secs(90);
/// Timeout of a shutdown. The pod waits a shorter time for reviews in progress.
const STOP: Duration = Duration::from_secs(30);

/// Options for starting the webhook.
#[derive(Debug, Clone)]
pub struct WebhookOptions {
    /// Interval of checks for moved tags; default 2 s, so that scenarios do not wait long.
    pub source_check_interval: Duration,
    /// `true` if the admission webhooks are registered with the API server; default `true`.
    pub admission: bool,
    /// Values of the chart, which Helm renders; default: the plain manifests.
    pub values: Option<Value>,
    /// Additional flags, at the end of the command line.
    pub flags: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
    /// Folders in which the webhook looks up programs, before the folders in the PATH of this
    /// process.
    pub programs: Vec<PathBuf>,
    /// Memory limit of the process in bytes, like the limit of its container; default: no limit.
    pub memory_limit: Option<u64>,
}

impl Default for WebhookOptions {
    fn default() -> Self {
        Self {
            source_check_interval: Duration::from_secs(2),
            admission: true,
            values: None,
            flags: Vec::new(),
            environment: Vec::new(),
            programs: Vec::new(),
            memory_limit: None,
        }
    }
}

/// A deployed webhook. Scenarios start and stop its process. The process ends when this value is
/// dropped.
pub struct Webhook {
    program: PathBuf,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    path: OsString,
    health: SocketAddr,
    content: SocketAddr,
    address: SocketAddr,
    admission: Vec<Value>,
    log: PathBuf,
    cache: PathBuf,
    janitor: Janitor,
    client: Client,
    process: Option<Process>,
    // This field is dropped after `process`, because only an empty cgroup can be removed.
    memory_limit: Option<MemoryLimit>,
}

impl Cluster {
    /// Applies the product's manifests and admission configuration, and starts `bundle-webhook` as
    /// its ServiceAccount.
    ///
    /// In an existing cluster ([`Builder::existing`](crate::cluster::Builder::existing)), returns
    /// an error if any of these objects exists. The admission configuration is removed when this
    /// process ends for any reason. [`Cluster::leave`] removes the other objects.
    pub async fn start_webhook(&self, options: WebhookOptions) -> Result<Webhook> {
        // The program is built before a free port is selected. A build can take long, and another
        // process could use the port meanwhile.
        let program = programs::get().await?.webhook.clone();
        let client = self.client().await?;
        if self.existing().is_some() && options.values.is_some() {
            bail!("values of the chart require a new cluster");
        }
        let mut product = Product::read(self, options.values.as_ref()).await?;
        self.prepare_existing(&mut product.manifests).await?;
        manifests::apply(&client, &product.manifests).await?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let health = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let content = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        if options.admission {
            register(&client, &product.admission, address).await?;
        }
        let kubeconfig = self
            .service_account_kubeconfig(&product.namespace, SERVICE_ACCOUNT)
            .await?;
        let cache = self
            .folder()
            .join("data")
            .join(format!("webhook-{}", address.port()));
        let mut flags: Vec<String> = [
            ("--kubeconfig", kubeconfig.display().to_string()),
            ("--listen", address.to_string()),
            ("--content-listen", content.to_string()),
            ("--health-listen", health.to_string()),
            ("--namespace", product.namespace),
            ("--san", Ipv4Addr::LOCALHOST.to_string()),
            ("--cache-dir", cache.display().to_string()),
            (
                "--source-check-interval",
                format!("{}ms", options.source_check_interval.as_millis()),
            ),
            ("--log-format", "json".to_owned()),
            // Each webhook on a cluster is a replica with its own identity. After a restart, a
            // webhook has the same identity.
            ("--identity", format!("e2e-{}", address.port())),
        ]
        .into_iter()
        .flat_map(|(name, value)| [name.to_owned(), value])
        .collect();
        if let Some(ca) = self.registries().iter().find_map(|registry| registry.ca()) {
            flags.extend(["--registry-ca".to_owned(), ca.display().to_string()]);
        }
        flags.extend(product.flags);
        flags.extend(options.flags);
        let mut webhook = Webhook {
            program,
            flags,
            environment: options.environment,
            path: std::env::join_paths(options.programs.iter().cloned().chain(
                std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()),
            ))?,
            health,
            content,
            address,
            admission: product.admission,
            log: self
                .logs()
                .join(format!("bundle-webhook-{}.log", address.port())),
            cache,
            janitor: self.janitor().clone(),
            client: client.clone(),
            process: None,
            memory_limit: options.memory_limit.map(MemoryLimit::new).transpose()?,
        };
        webhook.start().await?;
        if options.admission {
            wait_for_admission(&client)
                .await
                .with_context(|| webhook.log_tail())?;
        }
        Ok(webhook)
    }
}

impl Webhook {
    /// Starts the process with the same flags, ports and cache as before. Waits until the process
    /// is ready, or until missing registrations are the only reason that the process is not ready.
    pub async fn start(&mut self) -> Result<()> {
        if self.process.is_some() {
            bail!("bundle-webhook runs already");
        }
        let mut command = Command::new(&self.program);
        command
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(&self.flags);
        // Git sources need git, charts need helm.
        command.env("PATH", &self.path);
        if let Some(limit) = &self.memory_limit {
            command = limit.starting_inside(&command);
        }
        let process = self.process.insert(Process::start(
            "bundle-webhook",
            command,
            &self.log,
            &self.janitor,
        )?);
        let health = self.health;
        wait::until_true(READY, "bundle-webhook is ready", || {
            let alive = process.check_alive();
            async move {
                alive?;
                let (status, page) = get(health, "/readyz").await?;
                Ok(status == 200 || lacks_only_registrations(&page))
            }
        })
        .await
        .with_context(|| self.log_tail())
    }

    /// Returns the end of the log, for errors.
    fn log_tail(&self) -> String {
        let tail = self
            .process
            .as_ref()
            .map(Process::log_tail)
            .unwrap_or_default();
        format!("bundle-webhook wrote last:\n{tail}")
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        self.process
            .take()
            .context("bundle-webhook does not run")?
            .kill()
    }

    /// Sends SIGTERM and waits until the process ends.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.process
            .take()
            .context("bundle-webhook does not run")?
            .terminate(STOP)
            .await
    }

    /// Stops the process if it runs, and starts the process again.
    pub async fn restart(&mut self) -> Result<()> {
        if self.process.is_some() {
            self.stop().await?;
        }
        self.start().await
    }

    /// Returns `true` if the process is running.
    pub fn is_running(&mut self) -> bool {
        self.process
            .as_mut()
            .is_some_and(|process| process.check_alive().is_ok())
    }

    /// Returns the log of all runs of the process.
    pub fn log(&self) -> Result<String> {
        Ok(fs_err::read_to_string(&self.log)?)
    }

    /// Returns the folder of the cache, which outlives the process like the volume of a Pod.
    pub fn cache_folder(&self) -> &Path {
        &self.cache
    }

    /// Returns the process ID.
    pub fn pid(&self) -> Result<u32> {
        let process = self.process.as_ref();
        Ok(process.context("bundle-webhook does not run")?.pid())
    }

    /// Returns the resident memory in KiB.
    pub fn rss_kib(&self) -> Result<u64> {
        let pid = self
            .process
            .as_ref()
            .context("bundle-webhook does not run")?
            .pid();
        let output = Command::new("ps")
            .args(["-o", "rss=", "-p", &pid.to_string()])
            .output()
            .context("cannot start `ps`, which prints the memory of a process")?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse()
            .with_context(|| format!("`ps` printed no memory of process {pid}: `{text}`"))
    }

    /// Returns the memory limit. Returns an error if no limit is set.
    pub fn memory_limit(&self) -> Result<&MemoryLimit> {
        self.memory_limit
            .as_ref()
            .context("bundle-webhook runs without a memory limit")
    }

    /// Returns the response of `/metrics`.
    pub async fn metrics(&self) -> Result<String> {
        match get(self.health, "/metrics").await? {
            (200, body) => Ok(body),
            (status, body) => bail!("/metrics returned {status}: {body}"),
        }
    }

    /// Returns the URL at which the API server currently calls the webhook. `action` is `validate`
    /// or `mutate`; `client` is a client of the calling test.
    pub async fn admission_url(&self, client: &Client, action: &str) -> Result<String> {
        let plural = if action == "mutate" {
            "mutatingwebhookconfigurations"
        } else {
            "validatingwebhookconfigurations"
        };
        let path = format!("/apis/admissionregistration.k8s.io/v1/{plural}/bundle-webhook");
        let request = http::Request::get(path).body(Vec::new())?;
        let object: Value = client.request(request).await?;
        let url = object["webhooks"][0]["clientConfig"]["url"].as_str();
        let url = url.context("the registration has no url")?;
        let (_, path) = url
            .split_once(&format!("/{action}/"))
            .with_context(|| format!("`{url}` has no token yet"))?;
        Ok(format!("https://{}/{action}/{path}", self.address))
    }

    /// Creates or restores the admission registrations.
    pub async fn register(&self) -> Result<()> {
        register(&self.client, &self.admission, self.address).await
    }

    /// Waits until the API server calls the webhook; for use after [`Webhook::register`].
    pub async fn wait_for_admission(&self) -> Result<()> {
        wait_for_admission(&self.client)
            .await
            .with_context(|| self.log_tail())
    }

    /// Returns the address of the admission endpoint.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the address of the content service.
    pub fn content_address(&self) -> SocketAddr {
        self.content
    }

    /// Returns the address of `/healthz`, `/readyz` and `/metrics`.
    pub fn health_address(&self) -> SocketAddr {
        self.health
    }
}

/// Waits until the API server calls the webhook. The API server starts these calls shortly after it
/// has stored the registration with its `caBundle`.
///
/// Repeats a dry-run create of an invalid Bundle until the webhook rejects it.
pub async fn wait_for_admission(client: &Client) -> Result<()> {
    let probe = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": { "name": "e2e-probe" },
        "spec": {
            "provisionerClassName": "core-rukpak-io-plain",
            "source": { "type": "git", "git": {
                "repository": "https://git.example.com/e2e.git", "directory": "../outside", "ref": { "branch": "main" },
            } },
        },
    });
    let body = serde_json::to_vec(&probe).context("cannot write the probe")?;
    wait::until_true(READY, "the API server calls bundle-webhook", || {
        let client = client.clone();
        let body = body.clone();
        async move {
            let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles?dryRun=All")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)
                .context("cannot send the probe")?;
            match client.request::<Value>(request).await {
                Ok(_) => Ok(false),
                Err(kube::Error::Api(status)) if status.message.contains("denied the request") => {
                    Ok(true)
                }
                Err(error) => Err(error.into()),
            }
        }
    })
    .await
}

/// Applies `admission` for a process at `address`.
async fn register(client: &Client, admission: &[Value], address: SocketAddr) -> Result<()> {
    let mut admission = admission.to_vec();
    for configuration in &mut admission {
        point_at(configuration, address);
    }
    manifests::apply(client, &admission).await
}

/// Returns the folder with the product's deployment manifests.
pub(crate) fn deploy_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../webhook")
        .join("deploy")
}

/// Replaces the Service in each webhook of `configuration` by the address of a process on this
/// host.
fn point_at(configuration: &mut Value, address: SocketAddr) {
    let action = if configuration["kind"] == "MutatingWebhookConfiguration" {
        "mutate"
    } else {
        "validate"
    };
    for webhook in configuration["webhooks"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        let client = &mut webhook["clientConfig"];
        if let Some(fields) = client.as_object_mut() {
            fields.remove("service");
            fields.insert(
                "url".to_owned(),
                Value::String(format!("https://{address}/{action}")),
            );
        }
    }
}

/// Returns `true` if the response of `/readyz` reports only missing registrations. Scenarios remove
/// registrations on purpose.
fn lacks_only_registrations(page: &str) -> bool {
    let mut waiting = page.lines().filter(|line| line.starts_with("[-]"));
    waiting.all(|line| line.starts_with("[-]registrations:") && line.contains(" does not exist"))
}

/// Returns status and body of a plain HTTP GET.
async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    plain_http::get(&format!("http://{address}{path}")).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_service_by_local_address() {
        for (kind, expected) in [
            (
                "ValidatingWebhookConfiguration",
                "https://127.0.0.1:20001/validate",
            ),
            (
                "MutatingWebhookConfiguration",
                "https://127.0.0.1:20001/mutate",
            ),
        ] {
            let mut configuration = json!({ "kind": kind, "webhooks": [
                { "name": "a", "clientConfig": { "service": { "name": "s", "namespace": "n" } } },
            ] });
            point_at(&mut configuration, "127.0.0.1:20001".parse().unwrap());
            assert_eq!(
                configuration["webhooks"][0]["clientConfig"],
                json!({ "url": expected })
            );
        }
    }

    #[test]
    fn readiness_ignores_only_missing_registrations() {
        for (page, expected) in [
            (
                "[+]api ok\n[-]registrations: MutatingWebhookConfiguration a does not exist\n",
                true,
            ),
            (
                "[-]api waiting\n[-]registrations: a does not exist\n",
                false,
            ),
            ("[-]registrations: failurePolicy is Ignore\n", false),
            ("[-]shutdown\n", false),
        ] {
            assert_eq!(lacks_only_registrations(page), expected, "{page}");
        }
    }
}
