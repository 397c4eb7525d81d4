//! What is written down about an installation: its kinds and namespaces before, its result afterwards.
//! Not here: the status write (status).

use std::collections::{BTreeSet, HashMap};

use bundle_api::deployment::ServiceAccountName;
use bundle_api::deployment_status::Installed;
use bundle_api::names;
use bundle_core::plan::applyset::{self, GroupKind};
use bundle_core::reference::Digest;
use kube::ResourceExt as _;
use serde_json::json;

use super::bundle;
use super::deployment::Turn;
use super::items::Item;
use super::place::Placing;
use super::trouble::Trouble;

impl Turn<'_> {
    /// Writes down which kinds and namespaces will be in use, before anything is applied: a crash never loses an object.
    pub(super) async fn record_inventory(&mut self, items: &[Item]) -> Result<(), Trouble> {
        let (mut kinds, mut namespaces) = self.inventory();
        kinds.extend(kinds_of(items));
        namespaces.extend(namespaces_of(items));
        self.write_inventory(kinds, namespaces).await
    }

    pub(super) fn inventory(&self) -> (BTreeSet<GroupKind>, BTreeSet<String>) {
        let annotation = |name: &str| {
            self.annotations
                .get(name)
                .map(String::as_str)
                .unwrap_or_default()
        };
        (
            applyset::read_group_kinds(annotation(names::ANNOTATION_APPLYSET_GROUP_KINDS)),
            applyset::read_namespaces(annotation(names::ANNOTATION_APPLYSET_NAMESPACES)),
        )
    }

    pub(super) async fn write_inventory(
        &mut self,
        kinds: BTreeSet<GroupKind>,
        namespaces: BTreeSet<String>,
    ) -> Result<(), Trouble> {
        let wanted = [
            (
                names::ANNOTATION_APPLYSET_GROUP_KINDS,
                applyset::write_group_kinds(&kinds),
            ),
            (
                names::ANNOTATION_APPLYSET_NAMESPACES,
                applyset::write_namespaces(&namespaces),
            ),
            (
                names::ANNOTATION_APPLYSET_TOOLING,
                format!("{}/v{}", names::FIELD_MANAGER, env!("CARGO_PKG_VERSION")),
            ),
        ];
        let labelled = self.object.labels().get(names::LABEL_APPLYSET_ID) == Some(&self.applyset);
        let written = wanted
            .iter()
            .all(|(name, text)| self.annotations.get(*name) == Some(text));
        if written && labelled {
            return Ok(());
        }
        let annotations: HashMap<&str, &str> = wanted
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let metadata = json!({
            "uid": self.object.metadata.uid,
            "labels": { names::LABEL_APPLYSET_ID: self.applyset },
            "annotations": annotations,
        });
        bundle::patch_metadata(self.room, &self.room.deployments, &self.name, metadata)
            .await
            .map_err(|error| {
                Trouble::api(
                    "record what will be installed",
                    self.install_reason(),
                    &error,
                )
            })?;
        for (name, text) in wanted {
            self.annotations.insert(name.to_owned(), text);
        }
        Ok(())
    }

    /// What the status says after success.
    pub(super) fn record(&mut self, placing: &Placing<'_>, items: &[Item], fields: Option<Digest>) {
        let content = placing.child.status.content.as_ref();
        let version = content.and_then(|content| content.version.clone());
        let approved_by = self.approved_by.clone();
        self.status.installed = Some(Installed {
            digest: placing.digest().to_owned(),
            version: version.clone(),
            objects: Some(items.len() as u64),
            installed_as: Some(ServiceAccountName {
                namespace: placing.account.namespace.clone(),
                name: placing.account.name.clone(),
            }),
            requested_by: Some(self.requester.user.clone()),
            approved_by,
            fields_digest: fields.map(|digest| digest.to_string()),
        });
        self.status.active_bundle = Some(placing.child.name.clone());
        self.add_revision(&placing.child.name, placing.digest(), version.as_deref());
    }
}

pub(super) fn kinds_of(items: &[Item]) -> BTreeSet<GroupKind> {
    items
        .iter()
        .map(|item| GroupKind::new(&item.id.group, &item.id.kind))
        .collect()
}

pub(super) fn namespaces_of(items: &[Item]) -> BTreeSet<String> {
    items
        .iter()
        .filter_map(|item| item.id.namespace.clone())
        .collect()
}
