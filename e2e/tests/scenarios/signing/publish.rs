//! Publication of the images of the pod. The images are copied, signed, and attested with bills of
//! materials and provenance. cosign verifies all signatures and attestations.

use std::path::Path;

use e2e::image::{
    Attestations, BillOfMaterials, ImageSet, Platform, Provenance, WebhookImage, publish,
};
use e2e::registry::RegistryProgram;
use e2e::{Tool, programs};
use serde_json::Value;

use super::images::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn cosign_verifies_published_images_and_their_attestations() {
    let scene = Scene::new(RegistryProgram::Distribution).await;
    scene.keys("release", "p256").await;
    let program = programs::get().await.unwrap().webhook.clone();
    let pack = |platform| {
        let mut image = WebhookImage::of_scenarios(program.clone()).unwrap();
        image.platform = platform;
        (platform, image.pack().unwrap())
    };
    let set = ImageSet::new(Platform::ALL.map(pack).into());
    let folder = scene.bench.folder();
    let layout = folder.join("image");
    set.write(&layout, "0.1.0").unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let bills = Platform::ALL
        .map(|platform| {
            let bill = BillOfMaterials::of(root, "bundle-webhook", platform).unwrap();
            (platform, bill)
        })
        .to_vec();
    let provenance = Provenance {
        command: "cargo-xtask-image",
        source: "https://example.com/team/project".to_owned(),
        commit: "0123456789012345678901234567890123456789".to_owned(),
        lock: "00".repeat(32),
        profile: "release".to_owned(),
        platforms: Platform::ALL.map(|platform| platform.to_string()).into(),
        compiler: "rustc 1.95.0".to_owned(),
        builder: None,
    };
    let files = folder.join("attestations");
    let created = "2026-01-01T00:00:00Z";
    let attestations =
        Attestations::write(&files, &set, &bills, created, Some(&provenance)).unwrap();

    let reference = scene.registry.reference("bundle-webhook:0.1.0");
    let signer = ["--key".to_owned(), "release.key".to_owned()];
    let plugin =
        async |arguments: Vec<String>| scene.run_plugin(&arguments.join(" ")).await.success();
    let pinned = publish(&layout, &set, &reference, &attestations, &signer, plugin)
        .await
        .unwrap();

    let repository = pinned.split('@').next().unwrap();
    let verified = "--key release.pub --insecure-ignore-tlog=true --trusted-root empty.json --allow-http-registry";
    for digest in set.digests() {
        let verify = format!("verify {verified} {repository}@{digest}");
        let output = scene.cosign(Tool::Cosign3, &verify).await;
        output.success().unwrap();
    }
    let mut subjects = vec![(
        set.digest(),
        "slsaprovenance1",
        "provenance.json".to_owned(),
    )];
    for platform in Platform::ALL {
        let digest = set.digest_of(platform).unwrap();
        let name = |kind| format!("linux-{}.{kind}.json", platform.architecture());
        subjects.push((digest.clone(), "spdxjson", name("spdx")));
        subjects.push((digest.clone(), "cyclonedx", name("cdx")));
    }
    for (digest, kind, file) in subjects {
        let verify = format!("verify-attestation --type {kind} {verified} {repository}@{digest}");
        let output = scene.cosign(Tool::Cosign3, &verify).await;
        output.success().unwrap();
        let report = format!("verify {repository}@{digest} --key release.pub --attestation {kind}");
        let report = scene.run_plugin(&format!("{report} -o json")).await;
        let report: Value = serde_json::from_str(&report.success().unwrap()).unwrap();
        let written = fs_err::read(files.join(&file)).unwrap();
        let written: Value = serde_json::from_slice(&written).unwrap();
        let signed_by = report["signedBy"].as_array().unwrap();
        assert!(
            signed_by.iter().any(|by| by["predicate"] == written),
            "{file}: {report}"
        );
    }
}
