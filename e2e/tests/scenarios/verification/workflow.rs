//! A policy that accepts only signatures of one workflow, with its own trust root, on a cluster: at
//! admission and again before the installation.

use std::time::Duration;

use e2e::sigstore::{PERSON_ISSUER, Sigstore, WORKFLOW, WORKFLOW_ISSUER, person, workflow};
use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use crate::scenarios::objects;

const LONG: Duration = Duration::from_secs(90);
/// Time limit for changes that watches report. This time is shorter than the interval of 15 s
/// between reads of Secrets and ConfigMaps.
const WATCH_TIMEOUT: Duration = Duration::from_secs(14);

struct Scene {
    cluster: Cluster,
    ours: Sigstore,
    others: Sigstore,
}

impl Scene {
    async fn start() -> Self {
        let cluster = Cluster::builder().registries(1).start().await.unwrap();
        Self {
            ours: cluster.sigstore().await.unwrap(),
            others: cluster.sigstore().await.unwrap(),
            cluster,
        }
    }

    async fn plugin(&self, arguments: &str) -> Output {
        let plugin = self.cluster.plugin().await.unwrap();
        plugin
            .args(arguments.split(' '))
            .current_dir(self.cluster.folder())
            .output()
            .await
            .unwrap()
    }

    async fn kubectl(&self, arguments: &str, object: &Value) -> Output {
        let kubectl = self.cluster.tool(Tool::Kubectl).await.unwrap();
        kubectl
            .args(arguments.split(' '))
            .stdin(object.to_string())
            .output()
            .await
            .unwrap()
    }

    async fn apply(&self, object: &Value) {
        let applied = self.kubectl("apply -f -", object).await;
        applied.success().unwrap();
    }

    async fn publish(&self, version: &str) -> String {
        bundles::greeting(&self.cluster.folder().join(version), version, None).unwrap();
        let registry = self.cluster.registry(0).unwrap();
        let reference = registry.reference(&format!("greeting:{version}"));
        let pushed = self.plugin(&format!("push {version} {reference}")).await;
        pushed.success().unwrap().trim().to_owned()
    }

    /// Pushes content, and signs it with this version of cosign and a certificate for these claims.
    async fn signed(&self, by: Tool, sigstore: &Sigstore, claims: &Value, version: &str) -> String {
        let pinned = self.publish(version).await;
        let token = sigstore.token_file(claims).await.unwrap();
        let url = sigstore.url();
        let how = match by {
            Tool::Cosign2 => format!("--fulcio-url {url} --rekor-url {url}"),
            _ => format!(
                "--signing-config {} --trusted-root {}",
                sigstore.signing_config().display(),
                sigstore.trusted_root().display()
            ),
        };
        let line = format!(
            "sign --identity-token {} {how} -y --allow-http-registry {pinned}",
            token.display()
        );
        let cosign = self.cluster.tool(by).await.unwrap();
        sigstore
            .cosign2_environment()
            .into_iter()
            .filter(|_| by == Tool::Cosign2)
            .fold(cosign, |cosign, (name, path)| cosign.env(name, path))
            .args(line.split(' '))
            .output()
            .await
            .unwrap()
            .success()
            .unwrap();
        pinned
    }

    /// Returns the response to a dry-run create of a BundleDeployment of this content.
    async fn review(&self, pinned: &str) -> Output {
        let object = deployment("probe", pinned);
        self.kubectl("create --dry-run=server -f -", &object).await
    }

    async fn until_refused(&self, within: Duration, pinned: &str, words: &str) {
        let what = format!("{pinned} is refused: {words}");
        wait::until_true(within, &what, || async {
            Ok(self.review(pinned).await.stderr.contains(words))
        })
        .await
        .unwrap();
    }

    async fn until_admitted(&self, within: Duration, pinned: &str) {
        wait::until_true(within, &format!("{pinned} is admitted"), || async {
            Ok(self.review(pinned).await.is_success())
        })
        .await
        .unwrap();
    }

    async fn get(&self, what: &str) -> Value {
        objects::get(&self.cluster, what).await.unwrap_or_default()
    }

    /// Waits until a condition has this status, and returns its message.
    async fn until(&self, what: &str, kind: &str, status: &str) -> String {
        wait::until(LONG, &format!("{what}: {kind}={status}"), || async {
            let object = self.get(what).await;
            let conditions = object["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            let found = conditions.find(|condition| condition["type"] == kind);
            match found {
                Some(found) if found["status"] == status => Ok(Some(
                    found["message"].as_str().unwrap_or_default().to_owned(),
                )),
                _ => anyhow::bail!("{}", object["status"]),
            }
        })
        .await
        .unwrap()
    }

    /// Writes a trust root to the ConfigMap that the policy refers to.
    async fn trust(&self, root: &Value) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "our-root", "namespace": "bundle-system"},
            "data": {"trusted_root.json": root.to_string()},
        }))
        .await;
    }

    /// Applies a policy that accepts only signatures of this workflow.
    async fn require(&self, subject: &str) {
        let host = self.cluster.registry(0).unwrap().host();
        self.apply(&json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy",
            "metadata": {"name": "releases"},
            "spec": {
                "images": [{"glob": format!("{host}/**")}],
                "authorities": [{"name": "workflow", "keyless": {
                    "identities": [{"issuer": WORKFLOW_ISSUER, "subject": subject}],
                    "trustRoot": {"configMapRef": {"name": "our-root"}},
                }}],
            },
        }))
        .await;
    }
}

fn root(sigstore: &Sigstore) -> Value {
    serde_json::from_slice(&fs_err::read(sigstore.trusted_root()).unwrap()).unwrap()
}

fn deployment(name: &str, pinned: &str) -> Value {
    const CLASS: &str = "core-rukpak-io-plain";
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": CLASS, "template": {"metadata": {}, "spec": {
            "provisionerClassName": CLASS,
            "source": {"type": "image", "image": {"ref": pinned}},
        }}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn admits_and_installs_only_content_signed_by_the_workflow() {
    let scene = Scene::start().await;
    let _webhook = scene
        .cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    scene.trust(&root(&scene.ours)).await;
    scene.require(WORKFLOW).await;

    let mut another = workflow();
    let elsewhere = "example/shop/.github/workflows/try.yaml@refs/heads/main";
    another["job_workflow_ref"] = elsewhere.into();
    let (two, three) = (Tool::Cosign2, Tool::Cosign3);
    let ours = &scene.ours;
    let by_two = scene.signed(two, ours, &workflow(), "1.0.0").await;
    let by_three = scene.signed(three, ours, &workflow(), "1.0.1").await;
    let unsigned = scene.publish("1.0.2").await;
    let ana = person("ana@example.com");
    let wrong_issuer = scene.signed(three, ours, &ana, "1.0.3").await;
    let wrong_workflow = scene.signed(two, ours, &another, "1.0.4").await;
    let foreign = scene
        .signed(three, &scene.others, &workflow(), "1.0.5")
        .await;
    scene
        .until_refused(LONG, &unsigned, "BUNDLE-TRUST-001")
        .await;

    for (pinned, words) in [
        (&wrong_issuer, format!("issuer {PERSON_ISSUER}")),
        (
            &wrong_workflow,
            format!("subject https://github.com/{elsewhere}"),
        ),
        (&foreign, "an untrusted log".to_owned()),
    ] {
        let refused = scene.review(pinned).await.failure(1).unwrap();
        assert!(refused.contains("BUNDLE-TRUST-002"), "{refused}");
        assert!(refused.contains(&words), "{words}: {refused}");
    }
    for (pinned, name) in [(&by_two, "by-two"), (&by_three, "by-three")] {
        scene.until_admitted(LONG, pinned).await;
        let deploy = format!("deploy {name} {pinned} --wait --timeout 90s");
        scene.plugin(&deploy).await.success().unwrap();
        let bundles = scene.get("bundles").await;
        let bundles = bundles["items"].as_array().unwrap();
        let bundle = bundles.iter().find(|bundle| {
            let name_of = bundle["metadata"]["name"].as_str().unwrap_or_default();
            name_of.starts_with(name)
        });
        let signed_by = &bundle.unwrap()["status"]["signedBy"][0];
        assert_eq!(signed_by["identity"], WORKFLOW);
        assert_eq!(signed_by["issuer"], WORKFLOW_ISSUER);
        let delete = format!("delete {name} --wait");
        scene.plugin(&delete).await.success().unwrap();
    }

    // The BundleDeployment is admitted with its proof. The BundleDeployment waits for a pull secret
    // while the policy changes. Then the reconciler verifies the content again.
    let proven = format!("deploy late {by_three} --with-proof --dry-run=client -o json");
    let proven = scene.plugin(&proven).await.success().unwrap();
    let mut late: Value = serde_json::from_str(&proven).unwrap();
    late["spec"]["template"]["spec"]["source"]["image"]["pullSecret"] = "late".into();
    scene.kubectl("create -f -", &late).await.success().unwrap();
    let bundle = wait::until(LONG, "a Bundle for late", || async {
        let bundles = scene.get("bundles").await;
        let names = bundles["items"].as_array().into_iter().flatten();
        let mut names = names.filter_map(|bundle| bundle["metadata"]["name"].as_str());
        let name = names.find(|name| name.starts_with("late-"));
        Ok(name.map(|name| format!("bundle/{name}")))
    })
    .await
    .unwrap();
    scene
        .require(&format!("https://github.com/{elsewhere}"))
        .await;
    scene
        .until_refused(WATCH_TIMEOUT, &by_three, "BUNDLE-TRUST-002")
        .await;
    scene.until_admitted(WATCH_TIMEOUT, &wrong_workflow).await;
    scene
        .apply(&json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "late", "namespace": "bundle-system"},
            "stringData": {".dockerconfigjson": "{\"auths\":{}}"},
        }))
        .await;
    let reported = scene.until(&bundle, "Verified", "False").await;
    let words = format!("by another identity (subject {WORKFLOW}");
    assert!(reported.contains(&words), "{reported}");
    let installed = scene.get("configmap greeting -n greeting").await;
    assert_eq!(installed, Value::Null);

    // The ConfigMap gets another trust root, so results with the first trust root become invalid.
    scene.require(WORKFLOW).await;
    scene.until_admitted(WATCH_TIMEOUT, &by_three).await;
    scene.trust(&root(&scene.others)).await;
    scene
        .until_refused(WATCH_TIMEOUT, &by_three, "BUNDLE-TRUST-002")
        .await;
    scene.until_admitted(WATCH_TIMEOUT, &foreign).await;

    // The trust root expires soon. After the expiry, the policy reports the time and rejects all
    // content that it matches.
    let mut ending = root(&scene.others);
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(20);
    ending["tlogs"][0]["publicKey"]["validFor"]["end"] = end.to_string().into();
    scene.trust(&ending).await;
    scene
        .until("signaturepolicy/releases", "Ready", "True")
        .await;
    let reported = scene
        .until("signaturepolicy/releases", "Ready", "False")
        .await;
    assert!(reported.contains("it has expired"), "{reported}");
    assert!(jiff::Timestamp::now() > end);
    scene
        .until_refused(WATCH_TIMEOUT, &foreign, "it has expired")
        .await;
    scene
        .cluster
        .kubectl(["delete", "-n", "bundle-system", "configmap", "our-root"])
        .await
        .unwrap()
        .success()
        .unwrap();
    scene
        .until_refused(WATCH_TIMEOUT, &foreign, "does not exist")
        .await;
}
