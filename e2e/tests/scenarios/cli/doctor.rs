//! `kubectl bundle doctor` on a real API server: an intact installation, and single faults, one
//! after the other. The cluster has no node: Pods are ready because the scenario sets their status.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::{Cluster, WebhookOptions, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::{apply_as, get, kubectl, try_kubectl};

const SOON: Duration = Duration::from_secs(60);
const KINDS: [&str; 2] = [
    "validatingwebhookconfiguration",
    "mutatingwebhookconfiguration",
];

/// Results of `doctor`.
struct Report {
    exit: i32,
    checks: Vec<Value>,
}

impl Report {
    /// Runs `doctor` as the administrator, or as the user of a kubeconfig.
    async fn read(cluster: &Cluster, kubeconfig: Option<&Path>) -> Self {
        let mut command = cluster.plugin().await.unwrap();
        if let Some(kubeconfig) = kubeconfig {
            command = command.kubeconfig(kubeconfig);
        }
        let output = command
            .args(["doctor", "-o", "json"])
            .output()
            .await
            .unwrap();
        let report: Value = serde_json::from_str(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {output}"));
        Self {
            exit: output.code.unwrap(),
            checks: report["checks"].as_array().unwrap().clone(),
        }
    }

    fn of(&self, check: &str) -> impl Iterator<Item = &Value> {
        self.checks.iter().filter(move |one| one["check"] == check)
    }

    /// Panics unless a result of `check` has this state, and contains `part` in its message or in
    /// its hint.
    fn expect(&self, check: &str, state: &str, part: &str) {
        let found = self.of(check).any(|one| {
            let text = format!("{} {}", one["message"], one["hint"]);
            one["state"] == state && text.contains(part)
        });
        assert!(
            found,
            "no {state} {check} with `{part}` in {:#?}",
            self.checks
        );
    }

    /// Returns the names of checks with this state.
    fn names(&self, state: &str) -> Vec<&str> {
        let found = self.checks.iter().filter(|one| one["state"] == state);
        found.map(|one| one["check"].as_str().unwrap()).collect()
    }
}

/// Sets the condition Ready of all Pods of the Deployment: `False` if `ready` is 0, otherwise
/// `True`. Waits until the status of the Deployment reports `ready` ready Pods.
async fn set_pods(cluster: &Cluster, ready: u64) {
    let condition = if ready > 0 { "True" } else { "False" };
    wait::until_true(SOON, "the Deployment counts its Pods", || async {
        let list = "get pods -n bundle-system -l app.kubernetes.io/name=bundle-webhook -o name";
        let pods = try_kubectl(cluster, list).await.success()?;
        for pod in pods.lines() {
            let status =
                json!({"status": {"conditions": [{"type": "Ready", "status": condition}]}});
            let words = ["patch", pod, "-n", "bundle-system", "--subresource=status"];
            let patch = ["--type=merge", "-p", &status.to_string()];
            cluster
                .kubectl(words.into_iter().chain(patch))
                .await?
                .success()?;
        }
        let deployment = get(cluster, "deployment bundle-webhook -n bundle-system").await;
        let status = deployment.unwrap_or_default()["status"].take();
        Ok(
            status["readyReplicas"].as_u64().unwrap_or_default() == ready
                && status["updatedReplicas"] == 2,
        )
    })
    .await
    .unwrap();
}

/// Sets a field of the `clientConfig` of every webhook.
async fn set_client_config(cluster: &Cluster, field: &str, value: impl Fn(&str) -> String) {
    for kind in KINDS {
        let object = get(cluster, &format!("{kind} bundle-webhook"))
            .await
            .unwrap();
        let count = object["webhooks"].as_array().unwrap().len();
        let patch: Vec<Value> = (0..count)
            .map(|index| {
                let path = format!("/webhooks/{index}/clientConfig/{field}");
                json!({"op": "add", "path": path, "value": value(kind)})
            })
            .collect();
        let patch = Value::Array(patch).to_string();
        let words = ["patch", kind, "bundle-webhook", "--type=json", "-p", &patch];
        cluster.kubectl(words).await.unwrap().success().unwrap();
    }
}

/// Returns an expired certificate in the format of `caBundle`.
fn expired_authority() -> String {
    let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
    parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
    parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = parameters.self_signed(&key).unwrap();
    STANDARD.encode(certificate.pem())
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_names_each_fault_of_an_installation() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let cluster = &cluster;

    // Nothing is installed.
    let report = Report::read(cluster, None).await;
    assert_eq!(report.exit, 1);
    report.expect("definitions", "problem", "does not exist");
    report.expect("registrations", "problem", "does not exist");
    report.expect("pods", "problem", "does not exist");
    report.expect("permissions", "problem", "these permissions are missing");
    report.expect("admission", "unknown", "does not serve Bundles");
    for passed in ["connection", "kubernetes", "clock"] {
        report.expect(passed, "ok", "");
    }

    // The installation is intact.
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    set_pods(cluster, 2).await;
    let report = Report::read(cluster, None).await;
    let all = &report.checks;
    assert_eq!(report.names("problem"), [""; 0], "{all:#?}");
    assert_eq!(report.names("unknown"), [""; 0], "{all:#?}");
    assert_eq!(report.names("warning"), [""; 0], "{all:#?}");
    assert_eq!(report.exit, 0);
    report.expect("definitions", "ok", "5 definitions");
    report.expect("admission", "ok", "bundle-webhook rejected it");
    report.expect("caller", "ok", "core-rukpak-io-plain");

    // A tenant has few permissions, and `doctor` reports the missing permissions.
    let tenant = cluster.kubeconfig_for("doctor-tenant", &[]).unwrap();
    let report = Report::read(cluster, Some(&tenant)).await;
    assert_eq!(report.names("problem"), [""; 0], "{:#?}", report.checks);
    assert_eq!(report.exit, 0);
    report.expect("caller", "warning", "no permission for get");
    report.expect("definitions", "unknown", "Bundle is served");
    for unknown in [
        "registrations",
        "pods",
        "permissions",
        "policies",
        "admission",
    ] {
        report.expect(unknown, "unknown", "doctor-tenant");
    }

    // A permission of the pod is missing.
    let mut role = get(cluster, "clusterrole bundle-webhook").await.unwrap();
    let rules = role["rules"].as_array().unwrap();
    let events = json!(["events.k8s.io"]);
    let index = rules.iter().position(|rule| rule["apiGroups"] == events);
    let path = format!("/rules/{}", index.unwrap());
    let without = json!([{"op": "remove", "path": path}]).to_string();
    let words = [
        "patch",
        "clusterrole",
        "bundle-webhook",
        "--type=json",
        "-p",
    ];
    let patched = cluster.kubectl(words.into_iter().chain([without.as_str()]));
    patched.await.unwrap().success().unwrap();
    wait::until_true(SOON, "the authorizer has loaded the role", || async {
        let report = Report::read(cluster, None).await;
        Ok(report.names("problem") == ["permissions"])
    })
    .await
    .unwrap();
    let report = Report::read(cluster, None).await;
    report.expect("permissions", "problem", "events.k8s.io");
    role["metadata"] = json!({"name": "bundle-webhook", "labels": role["metadata"]["labels"]});
    apply_as(cluster, &role, None).await.success().unwrap();

    // First a registration is altered, then all registrations are missing.
    let altered = json!([{"op": "add", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]);
    let altered = altered.to_string();
    let words = [
        "patch",
        KINDS[0],
        "bundle-webhook",
        "--type=json",
        "-p",
        &altered,
    ];
    cluster.kubectl(words).await.unwrap().success().unwrap();
    let report = Report::read(cluster, None).await;
    assert_eq!(report.exit, 1);
    report.expect("registrations", "problem", "failurePolicy is Ignore");
    report.expect("registrations", "ok", "3 webhooks");
    for kind in KINDS {
        kubectl(cluster, &format!("delete {kind} bundle-webhook")).await;
    }
    wait::until_true(SOON, "the API server calls no webhook", || async {
        let report = Report::read(cluster, None).await;
        let mut results = report.of("admission");
        Ok(results.any(|one| one["code"] == "BUNDLE-DOCTOR-006"))
    })
    .await
    .unwrap();
    let report = Report::read(cluster, None).await;
    report.expect("registrations", "problem", "does not exist");
    report.expect("certificate", "problem", "no registration");
    webhook.register().await.unwrap();
    webhook.wait_for_admission().await.unwrap();

    // No pod runs.
    webhook.kill().unwrap();
    set_pods(cluster, 0).await;
    let report = Report::read(cluster, None).await;
    assert_eq!(report.exit, 1);
    report.expect("pods", "problem", "0 of 2 pods are ready");
    report.expect("admission", "problem", "no pod serves the Service");

    // The registrations point to another server, whose certificate has another authority.
    let server = cluster.server();
    set_client_config(cluster, "url", |kind| match kind {
        "mutatingwebhookconfiguration" => format!("{server}/mutate/token"),
        _ => format!("{server}/validate/token"),
    })
    .await;
    wait::until_true(SOON, "the certificate is rejected", || async {
        let report = Report::read(cluster, None).await;
        let mut results = report.of("admission");
        Ok(results.any(|one| {
            let message = one["message"].as_str().unwrap_or_default();
            one["code"] == "BUNDLE-DOCTOR-005" && message.contains("x509")
        }))
    })
    .await
    .unwrap();
    Report::read(cluster, None).await.expect(
        "admission",
        "problem",
        "not the certificate authority of the running pods",
    );

    // The certificate authority in the registrations has expired.
    let expired = expired_authority();
    set_client_config(cluster, "caBundle", |_| expired.clone()).await;
    let report = Report::read(cluster, None).await;
    report.expect("certificate", "problem", "it expired on 2021-01-01");
    let policies = report.of("policies").next().unwrap();
    assert_eq!(policies["state"], "ok", "{policies}");
}
