//! Pod as a process: certificates, registrations, shutdown, leader election, and permissions of its
//! own ServiceAccount.

use std::time::Duration;

use e2e::{Cluster, WebhookOptions, wait};

use crate::scenarios::objects::{get, kubectl, try_get};

const SOON: Duration = Duration::from_secs(60);
/// Time that is shorter than the default of `--lease-duration`, which is 15 s: a replica that waits
/// for the expiry of the lease fails the test.
const BEFORE_LEASE_EXPIRY: Duration = Duration::from_secs(12);

/// Returns the number of webhooks with a `caBundle`, and the number of all webhooks. Both numbers
/// count the webhooks of both registrations.
async fn trusted(cluster: &Cluster) -> (usize, usize) {
    let mut webhooks = Vec::new();
    for kind in ["validating", "mutating"] {
        let what = format!("{kind}webhookconfiguration bundle-webhook");
        let registration = get(cluster, &what).await.unwrap();
        webhooks.extend(registration["webhooks"].as_array().unwrap().clone());
    }
    let trusted = webhooks
        .iter()
        .filter(|webhook| webhook["clientConfig"]["caBundle"].is_string())
        .count();
    (trusted, webhooks.len())
}

/// Returns a field of the `spec` of the lease; an empty text if the field does not exist.
async fn lease_field(cluster: &Cluster, field: &str) -> String {
    let lease = get(cluster, "lease bundle-webhook -n bundle-system").await;
    let lease = lease.unwrap_or_default();
    lease["spec"][field].as_str().unwrap_or_default().to_owned()
}

async fn holder(cluster: &Cluster) -> String {
    lease_field(cluster, "holderIdentity").await
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_restores_its_certificates_and_registrations() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let (with_bundle, all) = trusted(&cluster).await;
    assert!(all > 0);
    assert_eq!(with_bundle, all);

    let patch = r#"[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]"#;
    kubectl(
        &cluster,
        &format!("patch validatingwebhookconfiguration bundle-webhook --type=json --patch={patch}"),
    )
    .await;
    wait::until_true(SOON, "a cleared caBundle is set again", || async {
        Ok(trusted(&cluster).await == (all, all))
    })
    .await
    .unwrap();

    // The registrations trust the new authority and the former authority. The certificate of the
    // former authority is still served.
    kubectl(
        &cluster,
        "delete secret bundle-webhook-tls -n bundle-system-state",
    )
    .await;
    wait::until_true(SOON, "the Secret is made anew", || async {
        let what = "secret bundle-webhook-tls -n bundle-system-state";
        Ok(try_get(&cluster, what).await?.is_some())
    })
    .await
    .unwrap();
    webhook.wait_for_admission().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_pod_releases_its_lease_for_the_successor() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let identity = format!("e2e-{}", webhook.address().port());
    let leads = || async { Ok(holder(&cluster).await == identity) };
    wait::until_true(SOON, "it leads", leads).await.unwrap();

    let status = webhook.stop().await.unwrap();
    assert!(status.success(), "{status}\n{}", webhook.log().unwrap());
    assert_eq!(holder(&cluster).await, "");
    webhook.start().await.unwrap();
    wait::until_true(BEFORE_LEASE_EXPIRY, "it leads again after SIGTERM", leads)
        .await
        .unwrap();

    webhook.kill().unwrap();
    let before = lease_field(&cluster, "acquireTime").await;
    webhook.start().await.unwrap();
    wait::until_true(
        BEFORE_LEASE_EXPIRY,
        "it leads again after SIGKILL",
        || async { Ok(lease_field(&cluster, "acquireTime").await != before) },
    )
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn replica_takes_the_lease_only_after_the_leader_died() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let short = |admission| WebhookOptions {
        admission,
        flags: ["--lease-duration", "8s"].map(ToOwned::to_owned).into(),
        ..WebhookOptions::default()
    };
    let mut first = cluster.start_webhook(short(true)).await.unwrap();
    let identity = |port: u16| format!("e2e-{port}");
    let (leader, cluster) = (identity(first.address().port()), &cluster);
    wait::until_true(SOON, "the first leads", || async {
        Ok(holder(cluster).await == leader)
    })
    .await
    .unwrap();

    let second = cluster.start_webhook(short(false)).await.unwrap();
    let leads = |webhook: String| {
        webhook
            .lines()
            .any(|line| line.trim() == "bundle_is_leader 1")
    };
    assert!(leads(first.metrics().await.unwrap()));
    assert!(!leads(second.metrics().await.unwrap()));

    first.kill().unwrap();
    wait::until_true(SOON, "the second leads", || async {
        Ok(leads(second.metrics().await?))
    })
    .await
    .unwrap();
    assert_eq!(holder(cluster).await, identity(second.address().port()));
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_service_account_cannot_write_objects_of_bundles() {
    let cluster = Cluster::builder().registries(0).start().await.unwrap();
    let _webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    let pod = "system:serviceaccount:bundle-system:bundle-webhook";
    for (may, question) in [
        ("no", "create configmaps -n default"),
        ("no", "get secrets -n default"),
        ("no", "list secrets -n bundle-system"),
        ("no", "update secrets/installer-token -n bundle-system"),
        ("no", "delete deployments.apps -A"),
        ("no", "patch customresourcedefinitions"),
        ("no", "patch validatingwebhookconfigurations/another"),
        // The permission is only for dry runs as the requester. RBAC cannot express this
        // restriction.
        ("yes", "impersonate users"),
        ("yes", "impersonate groups"),
        ("no", "create pods -n bundle-system"),
        ("no", "bind clusterroles"),
        ("no", "update provisionerclasses.core.rukpak.io"),
        ("no", "update signaturepolicies.core.rukpak.io"),
        ("no", "impersonate serviceaccounts -A"),
        ("no", "impersonate serviceaccounts/default -n bundle-system"),
        (
            "yes",
            "impersonate serviceaccounts/installer -n bundle-system",
        ),
        ("no", "watch secrets -n bundle-system"),
        ("no", "create secrets -n bundle-system"),
        ("no", "update secrets/regcred -n bundle-system"),
        ("no", "list secrets -n bundle-system-state"),
        ("no", "get secrets/other -n bundle-system-state"),
        (
            "yes",
            "get secrets/bundle-webhook-stamp -n bundle-system-state",
        ),
        (
            "no",
            "delete secrets/bundle-webhook-stamp -n bundle-system-state",
        ),
        ("no", "create events -n default"),
        ("yes", "create events.events.k8s.io -n default"),
        ("no", "update bundles.core.rukpak.io"),
        ("no", "update bundledeployments.core.rukpak.io"),
        ("no", "patch bundleapprovals.core.rukpak.io"),
        (
            "no",
            "update bundleapprovals.core.rukpak.io --subresource=status",
        ),
        (
            "yes",
            "patch bundleapprovals.core.rukpak.io --subresource=status",
        ),
        (
            "no",
            "update bundles.core.rukpak.io --subresource=finalizers",
        ),
        ("yes", "create bundles.core.rukpak.io"),
        ("yes", "get secrets/regcred -n bundle-system"),
    ] {
        let line = format!("auth can-i {question} --as {pod}");
        let output = cluster.kubectl(line.split(' ')).await.unwrap();
        assert_eq!(output.stdout.trim(), may, "{question}");
    }
}
