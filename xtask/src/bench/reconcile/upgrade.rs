//! Requests of the pod for a first installation, for upgrades that change a few objects, and for a
//! restart without changes.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use e2e::Cluster;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};

use super::super::install;
use super::super::restore::{quiet, requests};
use super::super::table::Table;
use super::Sizes;

/// Name of the BundleDeployment, and namespace of its objects.
const NAME: &str = "upgrade";
/// Text of each object.
const TEXT: &str = "text: a small object";

pub(super) async fn measure(sizes: &Sizes) -> Result<Table> {
    let cluster = super::start(true).await?;
    let mut webhook = super::start_webhook(&cluster, &[]).await?;
    let mut table = RequestTable::new(&cluster, sizes).await?;
    let reference = install::publish(&cluster, NAME, sizes.objects).await?;
    deploy(&cluster, &reference).await?;
    table.row("first installation").await?;

    let reference = changed_bundle(&cluster, sizes, "1.1.0").await?;
    deploy(&cluster, &reference).await?;
    let title = format!("upgrade that changes {} objects", sizes.changed);
    table.row(&title).await?;

    webhook.restart().await?;
    table.row("restart of the pod, without changes").await?;

    let reference = changed_bundle(&cluster, sizes, "1.2.0").await?;
    deploy(&cluster, &reference).await?;
    table.row(&format!("{title}, after the restart")).await?;
    Ok(table.table)
}

/// A table. Each row has the requests of the pod since the previous row.
struct RequestTable<'a> {
    cluster: &'a Cluster,
    objects: Api<ConfigMap>,
    /// Number of audit events of the previous rows.
    events: usize,
    /// `resourceVersion` of each object.
    versions: BTreeMap<String, Option<String>>,
    table: Table,
}

impl<'a> RequestTable<'a> {
    async fn new(cluster: &'a Cluster, sizes: &Sizes) -> Result<Self> {
        let head = format!("{} ConfigMaps", sizes.objects);
        let head = [
            &head,
            "reads",
            "dry runs",
            "writes",
            "changed objects",
            "access reviews",
            "other requests",
        ];
        quiet(cluster).await?;
        Ok(Self {
            cluster,
            objects: Api::namespaced(cluster.client().await?, NAME),
            events: cluster.audit()?.len(),
            versions: BTreeMap::new(),
            table: Table::new(&head),
        })
    }

    /// Waits until the pod sends only periodic requests, and adds a row.
    async fn row(&mut self, title: &str) -> Result<()> {
        quiet(self.cluster).await?;
        let events = self.cluster.audit()?;
        let sent = requests(&events[self.events..], NAME);
        self.events = events.len();
        let versions: BTreeMap<_, _> = self
            .objects
            .list(&ListParams::default())
            .await?
            .into_iter()
            .map(|object| (object.name_any(), object.resource_version()))
            .filter(|(name, _)| name.starts_with("item-"))
            .collect();
        let changed = versions
            .iter()
            .filter(|(name, version)| self.versions.get(*name) != Some(*version))
            .count();
        self.versions = versions;
        self.table.row([
            title.to_owned(),
            sent.reads.to_string(),
            sent.dry_runs.to_string(),
            sent.applies.to_string(),
            changed.to_string(),
            sent.reviews.to_string(),
            sent.others.to_string(),
        ]);
        Ok(())
    }
}

async fn deploy(cluster: &Cluster, reference: &str) -> Result<()> {
    cluster
        .kubectl_bundle(["deploy", NAME, reference, "--wait"])
        .await?
        .success()?;
    Ok(())
}

/// Publishes another version of the bundle, whose first objects have other data than in all other
/// versions.
async fn changed_bundle(cluster: &Cluster, sizes: &Sizes, version: &str) -> Result<String> {
    let folder = install::write(cluster, NAME, sizes.objects)?;
    let items = folder.join("manifests/items.yaml");
    let text = fs_err::read_to_string(&items)?;
    let changed_text = format!("text: {version}");
    let changed = text.replacen(TEXT, &changed_text, sizes.changed);
    ensure!(
        changed.matches(&changed_text).count() == sizes.changed,
        "the manifests do not have {} objects with `{TEXT}`",
        sizes.changed
    );
    fs_err::write(&items, changed)?;
    let package = folder.join("bundle.yaml");
    let text = fs_err::read_to_string(&package)?;
    let line = format!("version: {version}");
    fs_err::write(&package, text.replace("version: 1.0.0", &line))?;
    install::push(cluster, &folder, &format!("{NAME}:{version}")).await
}
