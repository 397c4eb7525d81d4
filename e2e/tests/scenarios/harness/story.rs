//! Story of the demo with assertions: once undisturbed, and once with a webhook that is killed
//! repeatedly. `e2e::story` has the command lines.

use e2e::cluster::Builder;
use e2e::story::{self, Silent, Teller};
use e2e::tools::KubernetesRelease;
use e2e::{Cluster, WebhookOptions};

async fn tell_all(cluster: Builder, killing: bool) {
    let cluster = cluster.registries(1).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let mut narrator = Silent;
    let folder = cluster.folder().join("story");
    let mut teller = Teller::new(&cluster, &mut webhook, &mut narrator, folder)
        .await
        .unwrap();
    if killing {
        teller = teller.killing_the_webhook();
    }
    for number in 0..story::CHAPTERS.len() {
        story::tell(&mut teller, number).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn story_succeeds_from_start_to_end() {
    tell_all(Cluster::builder(), false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn story_succeeds_on_the_oldest_supported_kubernetes() {
    let cluster = Cluster::builder().release(KubernetesRelease::Oldest);
    tell_all(cluster, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn story_succeeds_if_the_webhook_is_killed_after_every_line() {
    tell_all(Cluster::builder(), true).await;
}
