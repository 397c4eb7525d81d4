//! A thousand signed references through the webhook, with and without proof; and an artifact with a
//! thousand referrers.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bundle_api::names::ANNOTATION_PROOF;
use bundle_core::policy::RawSignature;
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::manifest::RawManifest;
use bundle_oci::registry::{Client, ClientOptions, Repository};
use bundle_trust::keys::{KeyKind, Password, PrivateKey, generate, load_private};
use bundle_trust::{proof_annotation, sign};
use e2e::registry::{RegistryOptions, RegistryProgram};
use e2e::{Cluster, ToolEnvironment, Webhook, WebhookOptions, wait};
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use serde_json::{Value, json};

use super::super::admission::{self, Percentiles};
use super::super::install;
use super::super::run::mebibytes;
use super::super::table::Table;
use super::{answer, publish, run};

const IN_FLIGHT: usize = 50;
const UPLOADS: usize = 8;
const POLICY_KNOWN: std::time::Duration = std::time::Duration::from_secs(30);

/// A reference and its proof.
struct Signed {
    pinned: PinnedReference,
    proof: String,
}

/// Admits references with distinct digests. The webhook is restarted before the second half, so
/// that both halves begin with empty caches.
pub(super) async fn admitted(count: usize) -> Result<Table> {
    let cluster = Cluster::builder().registries(1).start().await?;
    let mut webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    let key = key()?;
    let first: Reference = install::publish(&cluster, "small", 5).await?.parse()?;
    let first = first.pinned().context("push returned no digest")?;
    let signed = sign_many(&first, &key, count).await?;
    require(&cluster, &key).await?;
    let idle = webhook.rss_kib()?;
    let mut table = Table::new(&[
        &format!("{count} references, {IN_FLIGHT} in flight"),
        "per s",
        "p50 ms",
        "p99 ms",
        "webhook MiB after the run",
    ]);
    let mut row = |title: &str, took: Option<(f64, Percentiles)>, kib: u64| {
        let figures = took.map_or_else(
            || ["-", "-", "-"].map(ToOwned::to_owned),
            |(seconds, seen)| {
                let count = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
                [
                    format!("{:.0}", count / seconds),
                    format!("{:.2}", seen.p50),
                    format!("{:.2}", seen.p99),
                ]
            },
        );
        let [rate, p50, p99] = figures;
        table.row([
            title.to_owned(),
            rate,
            p50,
            p99,
            format!("{:.1}", mebibytes(kib)),
        ]);
    };
    row("before the first review", None, idle);
    for with_proof in [true, false] {
        if !with_proof {
            webhook.restart().await?;
            webhook.wait_for_admission().await?;
        }
        let kind = if with_proof {
            "with proof"
        } else {
            "without proof"
        };
        for round in ["", ", second run", ", third run"] {
            let took = creates(&cluster, &signed, with_proof).await?;
            row(&format!("{kind}{round}"), Some(took), webhook.rss_kib()?);
        }
    }
    check_refusal(&cluster, &webhook, &first).await?;
    Ok(table)
}

/// Checks that an unsigned reference is rejected. Otherwise the webhook has verified nothing, and
/// the measurement is invalid.
async fn check_refusal(
    cluster: &Cluster,
    webhook: &Webhook,
    unsigned: &PinnedReference,
) -> Result<()> {
    let client = cluster.client().await?;
    let object = admission::bundle(0, &unsigned.to_string());
    let answer = admission::create(client, object).await;
    ensure!(
        answer.is_err(),
        "the policy admitted unsigned content: {}",
        webhook.log()?
    );
    Ok(())
}

async fn creates(
    cluster: &Cluster,
    signed: &[Signed],
    with_proof: bool,
) -> Result<(f64, Percentiles)> {
    let client = cluster.client().await?;
    let began = Instant::now();
    let took = stream::iter(signed.iter().enumerate())
        .map(|(number, signed)| {
            let mut object = admission::bundle(number, &signed.pinned.to_string());
            if with_proof {
                object["metadata"]["annotations"] = json!({ANNOTATION_PROOF: signed.proof});
            }
            admission::create(client.clone(), object)
        })
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await?;
    Ok((began.elapsed().as_secs_f64(), Percentiles::of(took)))
}

/// Creates the policy, and waits until the webhook has loaded the policy.
async fn require(cluster: &Cluster, key: &PrivateKey) -> Result<()> {
    let policy = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "SignaturePolicy",
        "metadata": {"name": "bench"},
        "spec": {
            "images": [{"glob": "**"}],
            "authorities": [{"name": "release", "key": {"data": key.public().to_pem()}}],
        },
    });
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await?;
    let created = kubectl
        .args(["create", "-f", "-"])
        .stdin(policy.to_string());
    created.output().await?.success()?;
    let unsigned = install::publish(cluster, "unsigned", 1).await?;
    wait::until_true(POLICY_KNOWN, "the policy is known", || {
        let object = admission::bundle(0, &unsigned);
        async move {
            let created = admission::create(cluster.client().await?, object).await;
            Ok(created.is_err_and(|error| format!("{error:#}").contains("BUNDLE-TRUST-")))
        }
    })
    .await
}

/// Pushes images that differ from `first` in an annotation, and signs each image with `key`.
async fn sign_many(first: &PinnedReference, key: &PrivateKey, count: usize) -> Result<Vec<Signed>> {
    let registry = Client::new(ClientOptions::default())?;
    let repository = Repository::from(first.reference());
    let manifest = registry
        .raw_manifest(&repository, first.digest().as_str())
        .await?;
    let manifest: Value = serde_json::from_slice(&manifest.bytes)?;
    let media_type = manifest["mediaType"].as_str().unwrap_or_default();
    stream::iter(0..count)
        .map(|number| {
            let mut manifest = manifest.clone();
            manifest["annotations"]["com.example.number"] = number.to_string().into();
            let bytes = manifest.to_string().into_bytes();
            let raw = RawManifest {
                digest: bundle_core::reference::Digest::of(&bytes),
                media_type: media_type.to_owned(),
                bytes: bytes.into(),
            };
            let (registry, repository) = (&registry, &repository);
            async move {
                registry
                    .put_raw_manifest(repository, raw.digest.as_str(), &raw)
                    .await?;
                let pinned = first.reference().pin(raw.digest.clone());
                let bundle = signature(key, &pinned)?;
                registry.push_signature(&pinned, bundle.clone()).await?;
                let signature = RawSignature {
                    bytes: bundle,
                    artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
                    ..RawSignature::default()
                };
                Ok(Signed {
                    proof: proof_annotation::encode(&raw.bytes, &[signature])?,
                    pinned,
                })
            }
        })
        .buffer_unordered(UPLOADS)
        .try_collect()
        .await
}

/// Adds signatures made with other keys to one artifact, and measures `verify` for this artifact.
pub(super) async fn referrers(count: usize) -> Result<Table> {
    let bench = ToolEnvironment::new()?;
    let terms = RegistryOptions {
        program: RegistryProgram::WithReferrers,
        ..RegistryOptions::default()
    };
    let registry = bench.registry_with(terms).await?;
    let pinned = publish(&bench, &registry, "1.0.0").await?;
    run(&bench, "keys generate --output-key-prefix wanted").await?;
    let verify = format!("verify {pinned} --key wanted.pub");
    let mut table = Table::new(&["referrers: signatures by other keys", "s", "message"]);
    let client = Client::new(ClientOptions::default())?;
    let reference: Reference = pinned.parse()?;
    let reference = reference.pinned().context("push returned no digest")?;
    let other = key()?;
    for referrers in [1, count] {
        stream::iter(0..referrers)
            .map(|number| {
                // The signed annotation differs for each signature.
                let told = BTreeMap::from([("number".to_owned(), number.to_string())]);
                let bundle = sign::signed(&reference, &told)
                    .and_then(|payload| sign::bundle(&other, &payload));
                let (client, reference) = (&client, &reference);
                async move {
                    client.push_signature(reference, bundle?).await?;
                    anyhow::Ok(())
                }
            })
            .buffer_unordered(UPLOADS)
            .try_collect::<Vec<()>>()
            .await?;
        let began = Instant::now();
        let output = answer(bench.plugin().await?, &verify).await?;
        let seconds = began.elapsed().as_secs_f64();
        let message = output.failure(3)?;
        let message = message.split("the registry has").nth(1).unwrap_or(&message);
        let message = message.lines().next().unwrap_or_default().trim();
        table.row([
            referrers.to_string(),
            format!("{seconds:.3}"),
            message.replace('|', "\\|"),
        ]);
    }
    Ok(table)
}

fn key() -> Result<PrivateKey> {
    let password = Password::new("bench".to_owned());
    let files = generate(KeyKind::EcdsaP256, &password)?;
    Ok(load_private(&files.private_pem, &password)?)
}

fn signature(key: &PrivateKey, pinned: &PinnedReference) -> Result<Vec<u8>> {
    let payload = sign::signed(pinned, &BTreeMap::new())?;
    Ok(sign::bundle(key, &payload)?)
}
