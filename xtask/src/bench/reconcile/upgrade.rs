//! Requests of the pod for a first installation, for a restart without changes, and for an upgrade
//! that changes a few objects.

use anyhow::{Result, ensure};
use e2e::Cluster;

use super::super::install;
use super::super::restore::{quiet, requests};
use super::super::table::Table;
use super::Sizes;

/// Name of the BundleDeployment, and namespace of its objects.
const NAME: &str = "upgrade";
/// Text of each object, and the text after the upgrade.
const TEXT: &str = "text: a small object";
const CHANGED_TEXT: &str = "text: changed";

pub(super) async fn measure(sizes: &Sizes) -> Result<Table> {
    let cluster = super::start(true).await?;
    let mut webhook = super::start_webhook(&cluster, &[]).await?;
    let head = format!("{} ConfigMaps", sizes.objects);
    let mut table = Table::new(&[
        &head,
        "reads",
        "dry runs",
        "writes",
        "access reviews",
        "other requests",
    ]);
    quiet(&cluster).await?;
    let before = cluster.audit()?.len();
    let reference = install::publish(&cluster, NAME, sizes.objects).await?;
    deploy(&cluster, &reference).await?;
    row(&cluster, &mut table, "first installation", before).await?;

    let before = cluster.audit()?.len();
    webhook.restart().await?;
    let title = "restart of the pod, without changes";
    row(&cluster, &mut table, title, before).await?;

    let before = cluster.audit()?.len();
    let reference = changed_bundle(&cluster, sizes).await?;
    deploy(&cluster, &reference).await?;
    let title = format!("upgrade that changes {} objects", sizes.changed);
    row(&cluster, &mut table, &title, before).await?;
    Ok(table)
}

async fn deploy(cluster: &Cluster, reference: &str) -> Result<()> {
    cluster
        .kubectl_bundle(["deploy", NAME, reference, "--wait"])
        .await?
        .success()?;
    Ok(())
}

/// Publishes version 1.1.0 of the bundle, with other data in a few objects.
async fn changed_bundle(cluster: &Cluster, sizes: &Sizes) -> Result<String> {
    let folder = install::write(cluster, NAME, sizes.objects)?;
    let items = folder.join("manifests/items.yaml");
    let text = fs_err::read_to_string(&items)?;
    let changed = text.replacen(TEXT, CHANGED_TEXT, sizes.changed);
    ensure!(
        changed.matches(CHANGED_TEXT).count() == sizes.changed,
        "the manifests do not have {} objects with `{TEXT}`",
        sizes.changed
    );
    fs_err::write(&items, changed)?;
    let package = folder.join("bundle.yaml");
    let text = fs_err::read_to_string(&package)?;
    fs_err::write(&package, text.replace("version: 1.0.0", "version: 1.1.0"))?;
    install::push(cluster, &folder, &format!("{NAME}:1.1.0")).await
}

/// Adds a row with the requests after the first `before` events, when the pod has become quiet.
async fn row(cluster: &Cluster, table: &mut Table, title: &str, before: usize) -> Result<()> {
    quiet(cluster).await?;
    let sent = requests(&cluster.audit()?[before..], NAME);
    table.row([
        title.to_owned(),
        sent.reads.to_string(),
        sent.dry_runs.to_string(),
        sent.applies.to_string(),
        sent.reviews.to_string(),
        sent.others.to_string(),
    ]);
    Ok(())
}
