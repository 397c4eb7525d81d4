//! The certificates of the pods are rotated, and the release is upgraded.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use e2e::release::NodeRelease;
use e2e::{Cluster, wait};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use serde_json::{Value, json};

use super::super::super::objects::{get, kubectl};
use super::{NAMESPACE, RELEASE, assert_restored, installed, loaded, pods, until_ready};

/// Time limit for a rotation. It is longer than the interval in which each replica checks the
/// certificates.
const ROTATION: Duration = Duration::from_secs(60);
const STATE_NAMESPACE: &str = "bundle-system-state";
const TLS: &str = "bundle-webhook-tls";
/// Common name of authorities, followed by 16 hexadecimal digits.
const AUTHORITY: &str = "bundle-webhook-ca ";

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_upgrade_of_the_release_fails_no_review() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "upgraded").await;
    let before = pods(node).await;
    let mut values = node.values.clone();
    values["log"]["level"] = "info,bundle_webhook::lease=debug".into();
    node.release("upgrade", &values).await.unwrap();
    assert_restored(cluster).await;
    until_ready(node).await;
    let outcome = load.end(cluster).await;
    let after = pods(node).await;
    assert!(before.iter().all(|pod| !after.contains(pod)), "{after:?}");
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(3);
}

/// Returns an entry of the Secret with the certificates, or an empty value if the entry does not
/// exist.
async fn stored(cluster: &Cluster, key: &str) -> String {
    let secret = get(cluster, &format!("secret {TLS} -n {STATE_NAMESPACE}")).await;
    let value = secret.unwrap_or_default()["data"][key].clone();
    let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Replaces entries of the Secret with the certificates.
async fn store(cluster: &Cluster, entries: &[(&str, &str)]) {
    let data: serde_json::Map<String, Value> = entries
        .iter()
        .map(|(key, pem)| ((*key).to_owned(), STANDARD.encode(pem).into()))
        .collect();
    let patch = json!({"data": data}).to_string();
    kubectl(
        cluster,
        &format!("patch secret {TLS} -n {STATE_NAMESPACE} --type=merge --patch={patch}"),
    )
    .await;
}

/// Returns the expiry of the certificate that each replica serves, as Unix time in seconds.
async fn served(node: &NodeRelease) -> anyhow::Result<Vec<i64>> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut ends = Vec::new();
    for pod in node.pods().await? {
        let address = pod.status.and_then(|status| status.pod_ip);
        let address = address.unwrap_or_default();
        let page = http.get(format!("http://{address}:8080/metrics"));
        let page = page.send().await?.text().await?;
        let value = page
            .lines()
            .find_map(|line| line.strip_prefix("tls_certificate_not_after_seconds "))
            .ok_or_else(|| anyhow::anyhow!("{page}"))?;
        ends.push(value.trim().parse()?);
    }
    Ok(ends)
}

/// Waits until both replicas serve a certificate that expires later than `before`.
async fn until_served_after(node: &NodeRelease, before: &[i64]) {
    let last = *before.iter().max().unwrap();
    wait::until_true(
        ROTATION,
        "both replicas serve the new certificate",
        || async {
            let now = served(node).await?;
            anyhow::ensure!(now.iter().all(|end| *end > last), "{last} {now:?}");
            Ok(true)
        },
    )
    .await
    .unwrap();
}

fn params(begin: Timestamp, end: Timestamp) -> CertificateParams {
    let epoch = date_time_ymd(1970, 1, 1);
    let at =
        |time: Timestamp| epoch + Duration::from_secs(u64::try_from(time.as_second()).unwrap());
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.not_before = at(begin);
    params.not_after = at(end);
    params
}

/// Returns a serving certificate that is due for renewal, with its key.
fn old_serving(authority: &str, authority_key: &str) -> (String, String) {
    let issuer =
        Issuer::from_ca_cert_pem(authority, KeyPair::from_pem(authority_key).unwrap()).unwrap();
    let day = SignedDuration::from_hours(24);
    let now = Timestamp::now();
    let mut params = params(now - day * 80, now + day * 10);
    let names = ["svc", "svc.cluster.local"].map(|end| format!("{RELEASE}.{NAMESPACE}.{end}"));
    params.subject_alt_names = CertificateParams::new(names).unwrap().subject_alt_names;
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    (certificate.pem(), key.serialize_pem())
}

/// Returns the certificate of the authority with a validity period that began two hours ago.
fn older(authority: &str, authority_key: &str) -> String {
    let base64: String = authority
        .lines()
        .filter(|line| !line.starts_with("-----"))
        .collect();
    let der = STANDARD.decode(base64).unwrap();
    let at = der
        .windows(AUTHORITY.len())
        .position(|bytes| bytes == AUTHORITY.as_bytes())
        .unwrap();
    let name = std::str::from_utf8(&der[at..at + AUTHORITY.len() + 16]).unwrap();
    let now = Timestamp::now();
    let hour = SignedDuration::from_hours(1);
    let mut params = params(now - hour * 2, now + hour * 24 * 365 * 3);
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::from_pem(authority_key).unwrap();
    params.self_signed(&key).unwrap().pem()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_rotation_of_the_serving_certificate_fails_no_review() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "serving").await;
    let before = served(node).await.unwrap();
    let authority = stored(cluster, "ca.crt").await;
    let (certificate, key) = old_serving(&authority, &stored(cluster, "ca.key").await);
    store(cluster, &[("tls.crt", &certificate), ("tls.key", &key)]).await;
    until_served_after(node, &before).await;
    assert_eq!(stored(cluster, "ca.crt").await, authority);
    assert_restored(cluster).await;
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(1);
}

/// Returns the certificate authorities (`caBundle`) of the first validating webhook.
async fn registered(cluster: &Cluster) -> String {
    let object = get(
        cluster,
        &format!("validatingwebhookconfiguration {RELEASE}"),
    )
    .await;
    let bundle = object.unwrap_or_default()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    let bytes = STANDARD
        .decode(bundle.as_str().unwrap_or_default())
        .unwrap();
    String::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs for minutes: cargo xtask soak availability runs it"]
async fn node_rotation_of_the_certificate_authority_fails_no_review() {
    let node = &*installed().await;
    let cluster = &node.cluster;
    let load = loaded(node, "authority").await;
    let before = served(node).await.unwrap();
    let former = stored(cluster, "ca.crt").await;
    kubectl(
        cluster,
        &format!("delete secret {TLS} -n {STATE_NAMESPACE}"),
    )
    .await;
    // The registrations already trust the new authority. The pods still serve a certificate of the
    // former authority.
    wait::until_true(ROTATION, "both authorities are registered", || async {
        let now = stored(cluster, "ca.crt").await;
        let registered = registered(cluster).await;
        let has = |authority: &str| !authority.is_empty() && registered.contains(authority.trim());
        Ok(now != former && has(&now) && has(&former))
    })
    .await
    .unwrap();
    assert_eq!(served(node).await.unwrap(), before);
    // After one hour, the new authority issues the serving certificate.
    let announced = stored(cluster, "ca.crt").await;
    let older = older(&announced, &stored(cluster, "ca.key").await);
    store(cluster, &[("ca.crt", &older)]).await;
    until_served_after(node, &before).await;
    assert_restored(cluster).await;
    let outcome = load.end(cluster).await;
    outcome.assert_no_failed_review();
    outcome.assert_all_answered();
    outcome.assert_applied_once(1);
}
