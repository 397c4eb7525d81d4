//! Runs the console blocks of the how-to guides, and compares the output, on a cluster with two
//! registries and the webhook. `page` reads and runs the blocks.

use std::path::{Path, PathBuf};

use e2e::{Cluster, Tool, WebhookOptions};

use super::page;

/// Guides without console blocks, each with the reason.
const NOT_EXECUTED: &[(&str, &str)] = &[
    ("ci-signing.md", "its steps run in a CI system"),
    ("gitops.md", "its steps need Flux or Argo CD"),
    (
        "install-plugin.md",
        "`krew` installs an archive and verifies its signatures",
    ),
    ("install.md", "`chart` and `install` run its commands"),
    (
        "least-privilege-class.md",
        "`requester` tests its rules in other clusters",
    ),
    (
        "migrate-from-rukpak.md",
        "its steps start from a cluster with RukPak",
    ),
    (
        "mirror-registries.md",
        "`registries` runs its steps with several mirrors",
    ),
    ("troubleshoot.md", "its steps start from a failure"),
];

/// Images that the manifests of the guides name.
const IMAGES: &[&str] = &["images/web:1.4.0", "images/web:1.5.0"];

/// Returns the guides in alphabetical order.
fn guides() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to");
    let entries = fs_err::read_dir(folder).unwrap();
    let mut guides: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    guides.sort();
    guides
}

/// Pushes each of [`IMAGES`] as a container image with one layer.
async fn push_images(cluster: &Cluster) {
    let layer = cluster.folder().join("data/layer.tar.gz");
    fs_err::write(&layer, b"not an archive: the tests never run it").unwrap();
    for image in IMAGES {
        let reference = cluster.registry(0).unwrap().reference(image);
        let crane = cluster.tool(Tool::Crane).await.unwrap();
        let crane = crane
            .args(["append", "-t", &reference, "-f"])
            .args([&layer]);
        crane.output().await.unwrap().success().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn console_blocks_of_the_guides_have_the_shown_output() {
    let cluster = Cluster::builder().registries(2).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    push_images(&cluster).await;
    // Creates a link to helm in the PATH of the shells.
    cluster.tool(Tool::Helm).await.unwrap();
    let host = |number| cluster.registry(number).unwrap().host();
    let variables = [("REGISTRY", host(0)), ("MIRROR", host(1))];
    let mut failures = Vec::new();
    let mut not_executed = Vec::new();
    for guide in guides() {
        match page::follow(&cluster, &variables, &guide).await {
            Ok(0) => not_executed.push(guide.file_name().unwrap().to_string_lossy().into_owned()),
            Ok(_) => {}
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
    let listed: Vec<&str> = NOT_EXECUTED.iter().map(|(name, _)| *name).collect();
    assert_eq!(not_executed, listed);
}
