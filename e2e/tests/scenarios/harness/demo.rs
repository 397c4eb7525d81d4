//! The demo with assertions: without disturbances, on the oldest supported release, and with a
//! webhook that is killed repeatedly. `e2e::demo` has the command lines.

use e2e::cluster::Builder;
use e2e::demo::{self, DemoRunner, Recording};
use e2e::tools::KubernetesRelease;
use e2e::{Cluster, WebhookOptions};

/// Runs the demo, and returns the recorded part of the demo.
async fn run_demo(cluster: Builder, kills_webhook: bool) -> Recording {
    let cluster = cluster.registries(1).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let mut output = Recording::new(cluster.registry(0).unwrap().host());
    let folder = cluster.folder().join("demo");
    let mut runner = DemoRunner::new(&cluster, &mut webhook, &mut output, folder)
        .await
        .unwrap();
    if kills_webhook {
        runner = runner.killing_the_webhook();
    }
    for number in 0..demo::CHAPTERS.len() {
        demo::run_chapter(&mut runner, number).await.unwrap();
    }
    output
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_succeeds_from_start_to_end() {
    let recording = run_demo(Cluster::builder(), false).await;
    assert!(recording.svg().starts_with("<svg"));
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_succeeds_on_the_oldest_supported_kubernetes() {
    let cluster = Cluster::builder().release(KubernetesRelease::Oldest);
    run_demo(cluster, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_succeeds_if_the_webhook_is_killed_after_every_line() {
    run_demo(Cluster::builder(), true).await;
}
