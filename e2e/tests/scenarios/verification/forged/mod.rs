//! Forged signatures in a real registry, made from signatures with keys and with certificates.
//! Enforced policies reject all forgeries, in `policy test` and in a real admission review. Each
//! forgery has its own message. `bundle-trust` has tables of further forgeries.

use std::time::Duration;

use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, ClientOptions};
use bundle_trust::keys::load_private;
use e2e::sigstore::{Sigstore, person, workflow};
use e2e::{Cluster, Output, Tool, WebhookOptions, bundles, wait};
use serde_json::{Value, json};

use forgeries::{Forgery, by_certificate, by_key, of_version};

mod forgeries;

const LONG: Duration = Duration::from_secs(90);

struct Scene {
    cluster: Cluster,
    client: Client,
}

impl Scene {
    async fn run_plugin(&self, arguments: &str) -> Output {
        let plugin = self.cluster.plugin().await.unwrap();
        plugin
            .args(arguments.split(' '))
            .env("BUNDLE_PASSWORD", "fixture")
            .current_dir(self.cluster.folder())
            .output()
            .await
            .unwrap()
    }

    /// Pushes the bundle in `folder` under the name `name`. The content is the same for all names.
    async fn push(&self, folder: &str, name: &str) -> PinnedReference {
        let registry = self.cluster.registry(0).unwrap();
        let reference = registry.reference(&format!("{name}:1.0.0"));
        let pushed = self.run_plugin(&format!("push {folder} {reference}")).await;
        let pushed: Reference = pushed.success().unwrap().trim().parse().unwrap();
        pushed.pinned().unwrap()
    }

    /// Pushes the bundle in `folder` under the name `name`, signs it with the flags in `how`, and
    /// returns the stored signature.
    async fn signed(&self, folder: &str, name: &str, how: &str) -> Value {
        let pinned = self.push(folder, name).await;
        let signed = self.run_plugin(&format!("sign {pinned} {how}")).await;
        signed.success().unwrap();
        let found = self.client.signatures(&pinned).await.unwrap();
        serde_json::from_slice(&found[0].bytes).unwrap()
    }

    fn file(&self, name: &str) -> String {
        fs_err::read_to_string(self.cluster.folder().join(name)).unwrap()
    }

    async fn create(&self, object: &str, more: &str) -> Output {
        let kubectl = self.cluster.tool(Tool::Kubectl).await.unwrap();
        let line = format!("create -f -{more}");
        let created = kubectl.args(line.split(' ')).stdin(object);
        created.output().await.unwrap()
    }

    /// Returns the result of a dry-run create of a BundleDeployment of this image.
    async fn admission(&self, pinned: &PinnedReference) -> Output {
        let class = "core-rukpak-io-plain";
        let source = json!({ "type": "image", "image": { "ref": pinned.to_string() } });
        let object = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "BundleDeployment",
            "metadata": { "name": "forged" },
            "spec": {
                "provisionerClassName": class,
                "template": {
                    "metadata": { "labels": { "app": "forged" } },
                    "spec": { "provisionerClassName": class, "source": source },
                },
            },
        });
        self.create(&object.to_string(), " --dry-run=server").await
    }
}

fn policy(scene: &Scene, name: &str, authority: &Value) -> String {
    let host = scene.cluster.registry(0).unwrap().host();
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": { "name": name },
        "spec": {
            "images": [{ "glob": format!("{host}/{name}/**") }],
            "mode": "enforce",
            "authorities": [authority],
        },
    })
    .to_string()
}

/// Pushes the content once for each forgery, stores the forgery as its signature, and checks that
/// the forgery is rejected.
async fn none_passes(scene: &Scene, policy: &str, forgeries: Vec<Forgery>) {
    for (number, forgery) in forgeries.into_iter().enumerate() {
        let Forgery {
            name,
            bundle,
            annotations,
            reported,
        } = forgery;
        let pinned = scene.push("bundle", &format!("{policy}/{name}")).await;
        let stored = match annotations {
            None => scene.client.push_signature(&pinned, bundle).await,
            Some(annotations) => {
                let client = &scene.client;
                client
                    .push_legacy_signature(&pinned, bundle, annotations)
                    .await
            }
        };
        stored.unwrap();
        let asked = format!("policy test policies.yaml --image {pinned}");
        let refused = scene.run_plugin(&asked).await;
        let why = refused.failure(3).unwrap();
        assert!(why.contains(reported), "{policy}/{name}: {why}");
        assert!(why.contains("BUNDLE-TRUST-002"), "{policy}/{name}: {why}");
        // `policy test` and admission use the same function. A few cases are enough to test
        // admission.
        if number % 4 == 0 {
            let why = scene.admission(&pinned).await.failure(1).unwrap();
            assert!(why.contains("denied the request"), "{policy}/{name}: {why}");
            assert!(why.contains(reported), "{policy}/{name}: {why}");
        }
    }
}

async fn sign_by_certificate(
    scene: &Scene,
    sigstore: &Sigstore,
    claims: &Value,
    name: &str,
    folder: &str,
) -> Value {
    let token = sigstore.token_file(claims).await.unwrap();
    let how = crate::scenarios::signing::images::services(sigstore, &token);
    scene.signed(folder, name, &how).await
}

#[tokio::test(flavor = "multi_thread")]
async fn enforced_policies_reject_every_forgery() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let sigstore = cluster.sigstore().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let scene = Scene {
        client: Client::new(ClientOptions::default()).unwrap(),
        cluster,
    };
    for (folder, version) in [("bundle", "1.0.0"), ("second", "1.0.1")] {
        bundles::greeting(&scene.cluster.folder().join(folder), version, None).unwrap();
    }
    for key in ["release", "other"] {
        let asked = format!("keys generate --output-key-prefix {key}");
        scene.run_plugin(&asked).await.success().unwrap();
    }

    let root = fs_err::read_to_string(sigstore.trusted_root()).unwrap();
    let policies = [
        policy(
            &scene,
            "by-key",
            &json!({ "name": "release", "key": { "data": scene.file("release.pub") } }),
        ),
        policy(
            &scene,
            "by-name",
            &json!({ "name": "workflow", "keyless": {
            "identities": [{ "issuer": e2e::sigstore::WORKFLOW_ISSUER, "subject": e2e::sigstore::WORKFLOW }],
            "trustRoot": { "configMapRef": { "name": "our-root" } },
        } }),
        ),
    ];
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "our-root", "namespace": "bundle-system" },
        "data": { "trusted_root.json": root },
    })
    .to_string();
    let file = scene.cluster.folder().join("policies.yaml");
    let all = format!("{map}\n---\n{}\n---\n{}\n", policies[0], policies[1]);
    fs_err::write(&file, &all).unwrap();
    scene.create(&all, "").await.success().unwrap();

    let key = scene
        .signed("bundle", "by-key/good", "--key release.key")
        .await;
    let other = scene
        .signed("bundle", "by-key/other", "--key other.key")
        .await;
    let elsewhere = scene
        .signed("second", "by-key/second", "--key release.key")
        .await;
    let name = sign_by_certificate(&scene, &sigstore, &workflow(), "by-name/good", "bundle").await;
    let ana = person("ana@example.com");
    let by_ana = sign_by_certificate(&scene, &sigstore, &ana, "by-name/ana", "bundle").await;
    let second =
        sign_by_certificate(&scene, &sigstore, &workflow(), "by-name/second", "second").await;

    // Valid signatures are accepted, also under another name, because the content is signed and not
    // the name. Signatures in the format of earlier versions are also accepted, and signatures with
    // any key hint.
    let mut renamed = key.clone();
    renamed["verificationMaterial"]["publicKey"]["hint"] = json!("AAAA");
    let (first, second_version) = (of_version(&name, "0.1"), of_version(&name, "0.2"));
    for (number, (policy, bundle)) in [
        ("by-key", &key),
        ("by-key", &renamed),
        ("by-key", &of_version(&key, "0.2")),
        ("by-name", &name),
        ("by-name", &first),
        ("by-name", &second_version),
    ]
    .into_iter()
    .enumerate()
    {
        let copied = scene
            .push("bundle", &format!("{policy}/copied-{number}"))
            .await;
        let bytes = bundle.to_string().into_bytes();
        scene.client.push_signature(&copied, bytes).await.unwrap();
        let asked = format!("policy test policies.yaml --image {copied}");
        scene.run_plugin(&asked).await.success().unwrap();
        wait::until_true(LONG, "the policy and its root are known", || async {
            let answer = scene.admission(&copied).await;
            Ok(answer.is_success() && !answer.stderr.contains("BUNDLE-TRUST"))
        })
        .await
        .unwrap();
    }

    let password = bundle_trust::keys::Password::new("fixture".to_owned());
    let private = load_private(&scene.file("release.key"), &password).unwrap();
    none_passes(&scene, "by-key", by_key(&key, &other, &elsewhere, &private)).await;
    none_passes(&scene, "by-name", by_certificate(&name, &by_ana, &second)).await;
}
