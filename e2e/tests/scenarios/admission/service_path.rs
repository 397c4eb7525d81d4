//! Registrations that name a Service, as in the chart and the plain manifests. The other scenarios
//! register a URL, whose path can have any character.

use std::time::Duration;

use e2e::{Cluster, WebhookOptions, wait};

use crate::scenarios::objects::{get, kubectl};

#[tokio::test(flavor = "multi_thread")]
async fn registrations_of_a_service_get_authority_and_path() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let options = WebhookOptions {
        admission: false,
        ..WebhookOptions::default()
    };
    let _webhook = cluster.start_webhook(options).await.unwrap();
    let admission = concat!(env!("CARGO_MANIFEST_DIR"), "/../webhook/deploy/admission");
    kubectl(&cluster, &format!("apply --server-side -f {admission}")).await;
    for kind in [
        "validatingwebhookconfiguration",
        "mutatingwebhookconfiguration",
    ] {
        let what = format!("{kind} bundle-webhook");
        wait::until_true(Duration::from_secs(90), &what, || async {
            let found = get(&cluster, &what).await.unwrap_or_default();
            let webhooks = found["webhooks"].as_array().cloned().unwrap_or_default();
            Ok(!webhooks.is_empty()
                && webhooks.iter().all(|webhook| {
                    let client = &webhook["clientConfig"];
                    let path = client["service"]["path"].as_str().unwrap_or_default();
                    client["caBundle"].is_string() && path.matches('/').count() == 2
                }))
        })
        .await
        .unwrap();
    }
}
