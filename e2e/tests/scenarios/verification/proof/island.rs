//! Cluster and webhook in a network namespace with loopback and without routes; the registry is
//! outside. The test signs content outside, and runs itself again inside.

use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::host::command::Command;
use e2e::{Cluster, Tool, ToolEnvironment, WebhookOptions, bundles, programs, tools, wait};
use serde_json::{Value, json};

use super::{LONG, PROOF, create, policy};

/// Environment variable of the test inside of the namespace: folder of the objects that were
/// created outside.
const INSIDE: &str = "E2E_INSIDE_ISLAND";
const NAME: &str =
    "scenarios::verification::proof::island::proof_annotation_admits_without_network";

#[tokio::test(flavor = "multi_thread")]
async fn proof_annotation_admits_without_network() {
    if let Some(folder) = std::env::var_os(INSIDE) {
        return inside(&PathBuf::from(folder)).await;
    }
    // Missing programs are built outside.
    programs::get().await.unwrap();
    for tool in [Tool::Etcd, Tool::KubeApiserver, Tool::Kubectl] {
        tools::path_async(tool, None).await.unwrap();
    }
    let bench = ToolEnvironment::new().unwrap();
    make_objects(&bench).await;
    let island = bench.island().await.unwrap();
    let me = Command::new(std::env::current_exe().unwrap());
    let me = std::env::vars_os().fold(me, |me, (name, value)| me.env(name, value));
    let me = me
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, bench.folder())
        .env("CARGO_NET_OFFLINE", "true")
        .deadline(Duration::from_mins(5));
    let ran = island.inside(me).output().await.unwrap();
    let message = ran.success().unwrap();
    assert!(message.contains("1 passed"), "{message}");
}

/// Creates content that is signed with the key of the policy, content that is signed with another
/// key, and unsigned content. Each object exists with and without proof.
async fn make_objects(bench: &ToolEnvironment) {
    let run_plugin = async |arguments: &str| -> String {
        let plugin = bench.plugin().await.unwrap();
        let run = plugin
            .args(arguments.split(' '))
            .env("BUNDLE_PASSWORD", "fixture");
        run.output().await.unwrap().success().unwrap()
    };
    let registry = bench.registry().await.unwrap();
    for (version, key) in [("1.0.0", "release"), ("2.0.0", "other")] {
        bundles::greeting(&bench.folder().join(version), version, None).unwrap();
        run_plugin(&format!("keys generate --output-key-prefix {key}")).await;
        let reference = registry.reference(&format!("greeting:{version}"));
        let pinned = run_plugin(&format!("push {version} {reference}")).await;
        let pinned = pinned.trim();
        run_plugin(&format!("sign {pinned} --key {key}.key")).await;
        let line = format!("deploy greeting {pinned} --with-proof --dry-run=client -o json");
        fs_err::write(
            bench.folder().join(format!("{key}.json")),
            run_plugin(&line).await,
        )
        .unwrap();
    }
    let key = fs_err::read_to_string(bench.folder().join("release.pub")).unwrap();
    let policy = policy(&registry.host(), &key).to_string();
    fs_err::write(bench.folder().join("policy.json"), policy).unwrap();
}

async fn inside(folder: &Path) {
    let read = |name: &str| -> Value {
        let text = fs_err::read_to_string(folder.join(name)).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let (proven, foreign) = (read("release.json"), read("other.json"));
    for table in ["route", "-6 route"] {
        let routes = Command::new("ip")
            .args(table.split(' ').chain(["show", "default"]))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        assert_eq!(routes.output().await.unwrap().success().unwrap(), "");
    }
    let reference = proven["spec"]["template"]["spec"]["source"]["image"]["ref"].clone();
    let host = reference.as_str().unwrap().split('/').next().unwrap();
    let reached = tokio::net::TcpStream::connect(host).await;
    assert!(reached.is_err(), "the registry is here");

    let cluster = Cluster::builder()
        .registries(0)
        .controller_manager(false)
        .start()
        .await
        .unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let policy = folder.join("policy.json").display().to_string();
    let created = cluster.kubectl(["create", "-f", &policy]).await.unwrap();
    created.success().unwrap();
    let with_proof = |object: &Value, proof: Option<&str>| {
        let mut object = object.clone();
        object["metadata"]["annotations"] = proof.map(|proof| json!({ PROOF: proof })).into();
        object
    };
    let plain = with_proof(&proven, None);
    // Without a policy, an unreachable registry results only in a warning.
    wait::until_true(LONG, "the policy is known to the webhook", || async {
        Ok(!create(&cluster, &plain).await.is_success())
    })
    .await
    .unwrap();

    let admitted = create(&cluster, &proven).await;
    assert!(admitted.is_success(), "{admitted}");
    assert!(!admitted.stderr.contains("BUNDLE-TRUST"), "{admitted}");
    let refused = create(&cluster, &plain).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-017"), "{refused}");
    assert!(!refused.contains("BUNDLE-TRUST-016"), "{refused}");

    let proof = proven["metadata"]["annotations"][PROOF].as_str().unwrap();
    let other = foreign["metadata"]["annotations"][PROOF].as_str().unwrap();
    let cut = &proof[..proof.len() / 2];
    for (name, object, text) in [
        ("for other content", &plain, other),
        ("replayed on other content", &foreign, proof),
        ("cut", &plain, cut),
        ("nothing", &plain, ""),
    ] {
        let refused = create(&cluster, &with_proof(object, Some(text))).await;
        let why = refused.failure(1).unwrap();
        assert!(why.contains("BUNDLE-TRUST-016"), "{name}: {why}");
        assert!(why.contains("BUNDLE-REVIEW-017"), "{name}: {why}");
    }
    // The signatures in the proof are made with another key. The registry may have other
    // signatures, so the result is unknown.
    let refused = create(&cluster, &foreign).await.failure(1).unwrap();
    assert!(refused.contains("BUNDLE-REVIEW-017"), "{refused}");

    // `check` returns the same result.
    for (object, code) in [(&proven, 0), (&plain, 4), (&foreign, 4)] {
        let plugin = cluster.plugin().await.unwrap();
        let checked = plugin.args(["check", "-f", "-"]).stdin(object.to_string());
        let checked = checked.output().await.unwrap();
        assert_eq!(checked.code, Some(code), "{checked}");
    }
}
