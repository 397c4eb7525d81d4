//! etcd, kube-apiserver and kube-controller-manager: command lines and readiness. `node` has the
//! scheduler and a node.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use crate::certs::{self, Authority, Identity};
use crate::cluster::kubeconfig::{self, Credential};
use crate::host::janitor::Janitor;
use crate::host::ports;
use crate::host::process::Process;
use crate::tools::KubernetesRelease;
use crate::wait;

/// Time limit for the start of the control plane. The start usually takes five seconds, and longer
/// with two busy cores and a cold disk.
const READY: Duration = Duration::from_secs(90);

/// Settings of Go's garbage collector in etcd, the API server and the controllers: the collector
/// does not run below this heap size. Most clusters run for less than a minute and stay below this
/// size, so the collector uses no CPU time that the measured or tested program needs. Above this
/// size, the collector runs as usual.
const GARBAGE_COLLECTOR: [(&str, &str); 2] = [("GOGC", "off"), ("GOMEMLIMIT", "1536MiB")];

/// Name of the process of etcd.
pub(super) const STORE: &str = "etcd";
/// Name of the API server's process.
pub(super) const API_SERVER: &str = "kube-apiserver";

/// Audit policy: metadata of each completed request, never request or response bodies.
const AUDIT_POLICY: &str = r#"{
  "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
  "omitStages": ["RequestReceived", "ResponseStarted"],
  "rules": [{ "level": "Metadata" }]
}"#;

/// Returns the path of the API server's audit log.
pub(super) fn audit_log(root: &Path) -> PathBuf {
    root.join("logs").join("audit.log")
}

pub(super) struct ControlPlane<'a> {
    root: &'a Path,
    authority: &'a Authority,
    janitor: &'a Janitor,
    pub(super) store: String,
    /// Address of the API server.
    address: Ipv4Addr,
    port: u16,
    tokens: Identity,
    pub(super) server: String,
    pub(super) endpoint: Value,
    pub(super) admin: PathBuf,
    pub(super) processes: Vec<Process>,
}

impl<'a> ControlPlane<'a> {
    pub(super) fn new(
        root: &'a Path,
        authority: &'a Authority,
        janitor: &'a Janitor,
        address: Ipv4Addr,
    ) -> Result<Self> {
        let pki = root.join("pki");
        let port = ports::free()?;
        let server = format!("https://{address}:{port}");
        let identity = authority.client(&pki, "admin", "admin", &["system:masters"])?;
        let endpoint = kubeconfig::endpoint(&server, authority.certificate())?;
        let credential = Credential::Certificate(&identity);
        let admin = kubeconfig::write(root, "admin", &endpoint, &credential)?;
        let store = format!("http://127.0.0.1:{}", ports::free()?);
        Ok(Self {
            root,
            authority,
            janitor,
            store,
            address,
            port,
            tokens: certs::token_keys(&pki)?,
            server,
            endpoint,
            admin,
            processes: Vec::new(),
        })
    }

    pub(super) fn start_store(&mut self, program: &Path) -> Result<()> {
        let peer = format!("http://127.0.0.1:{}", ports::free()?);
        let flags = [
            flag("data-dir", self.root.join("data").join("etcd")),
            flag("listen-client-urls", &self.store),
            flag("advertise-client-urls", &self.store),
            flag("listen-peer-urls", &peer),
            flag("initial-advertise-peer-urls", &peer),
            flag("initial-cluster", format!("default={peer}")),
            flag("log-level", "warn"),
            // The data is deleted with the cluster: no fsync is needed.
            OsString::from("--unsafe-no-fsync"),
        ];
        self.start(STORE, program, &flags)
    }

    /// Starts the API server. With `audit`, the API server writes one line for each completed
    /// request. With `webhook_client_certificate`, the API server presents a client certificate to
    /// webhooks.
    pub(super) fn start_api_server(
        &mut self,
        program: &Path,
        release: KubernetesRelease,
        audit: bool,
        webhook_client_certificate: bool,
    ) -> Result<()> {
        let serving = self
            .authority
            .server(&self.root.join("pki"), "kube-apiserver")?;
        let mut flags = vec![
            flag("etcd-servers", &self.store),
            flag("bind-address", self.address.to_string()),
            flag("advertise-address", self.address.to_string()),
            flag("secure-port", self.port.to_string()),
            flag("tls-cert-file", &serving.certificate),
            flag("tls-private-key-file", &serving.key),
            flag("client-ca-file", self.authority.certificate()),
            flag("service-account-issuer", "https://kubernetes.default.svc"),
            flag("service-account-key-file", &self.tokens.certificate),
            flag("service-account-signing-key-file", &self.tokens.key),
            flag("service-cluster-ip-range", "10.96.0.0/24"),
            flag("authorization-mode", "Node,RBAC"),
            flag("allow-privileged", "true"),
            // The API server connects directly to the endpoints of a webhook's Service, so no
            // kube-proxy is needed.
            flag("enable-aggregator-routing", "true"),
        ];
        flags.extend(release.api_server_flags().iter().map(OsString::from));
        if self.address.is_loopback() {
            // A loopback address is not a valid endpoint of the Service `kubernetes`. The Service
            // needs no endpoints, because no program in the cluster uses it.
            flags.push(flag("endpoint-reconciler-type", "none"));
        } else {
            // The API server needs a client certificate for requests to the kubelet of the node,
            // such as logs and `exec`.
            let pki = self.root.join("pki");
            let groups = ["system:masters"];
            let identity =
                self.authority
                    .client(&pki, "kubelet-client", "kube-apiserver", &groups)?;
            flags.extend([
                flag("kubelet-client-certificate", &identity.certificate),
                flag("kubelet-client-key", &identity.key),
                flag("kubelet-preferred-address-types", "InternalIP"),
            ]);
        }
        if audit {
            let policy = self.root.join("pki").join("audit-policy.json");
            fs_err::write(&policy, AUDIT_POLICY)?;
            flags.push(flag("audit-policy-file", policy));
            flags.push(flag("audit-log-path", audit_log(self.root)));
            // The unit is MiB. Scenarios read only one file, so the API server must not rotate this
            // file.
            flags.push(flag("audit-log-maxsize", "4096"));
        }
        if webhook_client_certificate {
            let configuration = self.admission_configuration()?;
            flags.push(flag("admission-control-config-file", configuration));
        }
        self.start(API_SERVER, program, &flags)
    }

    /// Writes the AdmissionConfiguration with a client certificate for every webhook.
    fn admission_configuration(&self) -> Result<PathBuf> {
        let pki = self.root.join("pki");
        let identity = self
            .authority
            .client(&pki, "webhook-client", "kube-apiserver", &[])?;
        let kubeconfig = pki.join("webhooks.kubeconfig");
        let users = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "*", "user": {
                "client-certificate": identity.certificate,
                "client-key": identity.key,
            }}],
        });
        fs_err::write(&kubeconfig, users.to_string())?;
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": kubeconfig,
            }})
        };
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [plugin("ValidatingAdmissionWebhook"), plugin("MutatingAdmissionWebhook")],
        });
        let file = pki.join("admission-configuration.json");
        fs_err::write(&file, configuration.to_string())?;
        Ok(file)
    }

    pub(super) fn start_controllers(&mut self, program: &Path) -> Result<()> {
        let user = "system:kube-controller-manager";
        let identity =
            self.authority
                .client(&self.root.join("pki"), "kube-controller-manager", user, &[])?;
        let credential = Credential::Certificate(&identity);
        let config = kubeconfig::write(
            self.root,
            "kube-controller-manager",
            &self.endpoint,
            &credential,
        )?;
        let flags = [
            flag("kubeconfig", &config),
            flag("authentication-kubeconfig", &config),
            flag("authorization-kubeconfig", &config),
            flag("bind-address", "127.0.0.1"),
            // The value 0 disables the port, which no program uses.
            flag("secure-port", "0"),
            flag("service-account-private-key-file", &self.tokens.key),
            flag("root-ca-file", self.authority.certificate()),
            flag("use-service-account-credentials", "true"),
            flag("leader-elect", "false"),
            // With the default of 20 requests per second, the controllers take four seconds to
            // start.
            flag("kube-api-qps", "500"),
            flag("kube-api-burst", "1000"),
        ];
        self.start("kube-controller-manager", program, &flags)
    }

    /// Waits until the API server is ready.
    pub(super) async fn wait_ready(&mut self) -> Result<()> {
        wait_ready(&self.client().await?, &mut self.processes).await
    }

    /// Waits until the controllers have created the first ServiceAccount, which Pods in `default`
    /// need.
    pub(super) async fn wait_for_controllers(&mut self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        wait::until_true(READY, "the controllers work", || {
            let alive = self.check_alive();
            let accounts = accounts.clone();
            async move {
                alive?;
                Ok(accounts.get_opt("default").await?.is_some())
            }
        })
        .await
    }

    /// Returns a client with the administrator's credentials.
    pub(super) async fn client(&self) -> Result<Client> {
        let config = Kubeconfig::read_from(&self.admin)
            .context("cannot read the administrator's kubeconfig")?;
        let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default())
            .await
            .context("cannot use the kubeconfig")?;
        Client::try_from(config).context("cannot make a client")
    }

    fn start(&mut self, name: &str, program: &Path, flags: &[OsString]) -> Result<()> {
        let mut command = Command::new(program);
        command
            // Each controller uses the program name in `argv[0]` as field manager.
            .arg0(name)
            .env_clear()
            .env("HOME", self.root.join("home"))
            .envs(GARBAGE_COLLECTOR)
            .current_dir(self.root.join("data"))
            .args(flags);
        let log = self.root.join("logs").join(format!("{name}.log"));
        self.processes
            .push(Process::start(name, command, &log, self.janitor)?);
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        self.processes.iter_mut().try_for_each(Process::check_alive)
    }
}

/// Waits until the API server is ready. Fails if one of `processes` ends.
pub(super) async fn wait_ready(client: &Client, processes: &mut [Process]) -> Result<()> {
    wait::until_true(READY, "the API server is ready", || {
        let alive = processes.iter_mut().try_for_each(Process::check_alive);
        let client = client.clone();
        async move {
            alive?;
            let request = http::Request::get("/readyz")
                .body(Vec::new())
                .context("cannot read /readyz")?;
            Ok(client.request_text(request).await? == "ok")
        }
    })
    .await
}

fn flag(name: &str, value: impl Into<OsString>) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value.into());
    flag
}
