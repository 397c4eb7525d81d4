//! The demo with assertions: without disturbances, on the oldest supported release, and with a
//! webhook that is killed repeatedly. `e2e::demo` has the command lines.

use e2e::cluster::Builder;
use e2e::demo::{self, DemoRunner, NoOutput};
use e2e::tools::KubernetesRelease;
use e2e::{Cluster, WebhookOptions};

async fn run_demo(cluster: Builder, kills_webhook: bool) {
    let cluster = cluster.registries(1).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let mut output = NoOutput;
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
}

#[tokio::test(flavor = "multi_thread")]
async fn demo_succeeds_from_start_to_end() {
    run_demo(Cluster::builder(), false).await;
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
