//! The no-op Go webhook that admission benchmarks compare with bundle-webhook. The harness builds
//! the no-op webhook and registers it for Bundles. The process ends when `NoopWebhook` is dropped.
//! The code of the process is in `e2e/peers/noop-webhook`; xtask has the measurements.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::cluster::manifests;
use crate::host::ports;
use crate::host::process::Process;
use crate::wait;

const NAME: &str = "noop-webhook";
const READY: Duration = Duration::from_secs(90);

/// Running webhook.
pub struct NoopWebhook {
    process: Process,
}

impl Cluster {
    /// Builds the webhook with Go, starts it, and registers it for Bundles like `bundle-webhook`:
    /// as a mutating and as a validating webhook. With `patch`, the mutating webhook returns a JSON
    /// patch that adds an annotation of `patch` bytes.
    pub async fn start_noop_webhook(&self, patch: Option<usize>) -> Result<NoopWebhook> {
        let program = self.go_peer(NAME)?;
        let identity = self.authority().server(&self.folder().join("pki"), NAME)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let mut command = Command::new(program);
        command
            .args(["-listen", &address.to_string(), "-cert"])
            .arg(&identity.certificate)
            .arg("-key")
            .arg(&identity.key);
        if let Some(size) = patch {
            command.args(["-patch", &size.to_string()]);
        }
        let log = self.logs().join("noop-webhook.log");
        let mut process = Process::start(NAME, command, &log, self.janitor())?;
        wait::until_true(READY, "the no-op webhook listens", || {
            let alive = process.check_alive();
            async move {
                alive?;
                Ok(tokio::net::TcpStream::connect(address).await.is_ok())
            }
        })
        .await?;
        let ca = STANDARD.encode(fs_err::read(self.authority().certificate())?);
        let registrations = [
            registration("ValidatingWebhookConfiguration", address, "", &ca),
            registration(
                "MutatingWebhookConfiguration",
                address,
                patch.map_or("", |_| "patch"),
                &ca,
            ),
        ];
        manifests::apply(&self.client().await?, &registrations).await?;
        Ok(NoopWebhook { process })
    }
}

impl NoopWebhook {
    /// Ends the process. The registrations `noop-webhook` remain in the cluster.
    pub fn kill(mut self) -> Result<()> {
        self.process.kill()
    }
}

fn registration(kind: &str, address: SocketAddr, path: &str, ca: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "noop.webhook.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "clientConfig": {"url": format!("https://{address}/{path}"), "caBundle": ca},
            "rules": [{
                "apiGroups": ["core.rukpak.io"],
                "apiVersions": ["v1alpha1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["bundles"],
                "scope": "*"
            }]
        }]
    })
}
