//! Input of the planner (facts), computed from the objects that the user may read.

use bundle_api::BundleDeployment;
use bundle_core::plan::decision::Decider;
use bundle_core::plan::inventory::{ContentKeyPrefix, Inventory};
use bundle_core::plan::revisions;
use bundle_core::plan::steps::{AppliedContent, ObservedDeployment};
use bundle_core::review::deployment::CheckedDeploymentSpec;
use bundle_core::review::{Class, approval_terms};
use serde_json::Value;

use crate::commands::deployments::state::conditions;

/// Inventory of a BundleDeployment.
#[derive(Debug)]
pub(super) enum InventoryFact {
    /// The recorded inventory; empty before the first installation.
    Known(Box<Inventory>),
    /// The user has no permission to read the inventory. The facts come from the status instead.
    Unread,
}

/// Objects from which the facts are computed.
pub(super) struct KnownObjects<'a> {
    /// The BundleDeployment as JSON.
    pub(super) object: &'a Value,
    /// The BundleDeployment, parsed.
    pub(super) item: &'a BundleDeployment,
    /// Spec of the BundleDeployment.
    pub(super) spec: &'a CheckedDeploymentSpec,
    /// Class of the BundleDeployment, if the class is known.
    pub(super) class: Option<&'a Class>,
    /// Digest of the content, if the location of the content contains a digest.
    pub(super) digest: Option<&'a str>,
    /// Name of the Bundle of the current template. `None` if the plan is for other content.
    pub(super) bundle: Option<&'a str>,
    /// Inventory.
    pub(super) inventory: &'a InventoryFact,
}

impl KnownObjects<'_> {
    /// Returns the input of the planner for a reconcile that installs the content. The Bundle of
    /// the content is assumed to be unpacked.
    pub(super) fn observed(&self) -> ObservedDeployment {
        let status = self.item.status.as_ref();
        let facts = match self.inventory {
            InventoryFact::Known(inventory) => self.recorded(inventory),
            InventoryFact::Unread => self.reported(),
        };
        let is_in_place = facts.is_installed && conditions::is_installed(self.item);
        let active = status.and_then(|status| status.active_bundle.as_deref());
        ObservedDeployment {
            is_paused: self.spec.paused,
            corrects_drift: self.spec.correct_drift,
            is_unpacked: true,
            in_place: if is_in_place {
                AppliedContent::Wanted
            } else if active.is_some() {
                AppliedContent::Other
            } else {
                AppliedContent::Unknown
            },
            is_active: active.is_some() && active == self.bundle,
            ..facts
        }
    }

    /// Returns the facts from the inventory.
    fn recorded(&self, inventory: &Inventory) -> ObservedDeployment {
        let record = inventory.record.as_ref();
        let revision = record.and_then(|record| record.revisions.first());
        let prefix = self.prefix();
        let prefix = prefix.as_ref();
        ObservedDeployment {
            is_installed: prefix.is_some_and(|prefix| inventory.is_installed(prefix)),
            was_installed: prefix.is_some_and(|prefix| inventory.was_installed(prefix)),
            has_installed_config: revisions::has_config(revision, &self.object["spec"]["config"]),
            is_unfinished: record.is_some_and(|record| record.is_unfinished),
            is_decided: prefix.zip(self.class).zip(record).is_some_and(
                |((prefix, class), record)| {
                    let decider = Decider::new(class, &approval_terms(&self.object["spec"]));
                    record.decisions.is_decided(prefix, &decider)
                },
            ),
            ..ObservedDeployment::default()
        }
    }

    /// Returns the facts from the status. Installed content is treated as authorized.
    /// bundle-webhook itself reads the facts from the inventory, because other users can write the
    /// status.
    fn reported(&self) -> ObservedDeployment {
        let status = self.item.status.as_ref();
        let installed = status.and_then(|status| status.installed.as_ref());
        let is_same =
            installed.is_some_and(|installed| self.digest == Some(installed.digest.as_str()));
        let revision = status.and_then(|status| status.revisions.first());
        let upgrade = status.and_then(|status| status.upgrade.as_ref());
        ObservedDeployment {
            is_installed: is_same && upgrade.is_none(),
            was_installed: is_same,
            has_installed_config: revisions::has_config(revision, &self.object["spec"]["config"]),
            is_unfinished: upgrade.is_some(),
            is_decided: is_same,
            ..ObservedDeployment::default()
        }
    }

    fn prefix(&self) -> Option<ContentKeyPrefix> {
        let of_class = || self.class?.service_account.as_ref();
        let account = self.spec.service_account.as_ref().or_else(of_class)?;
        let namespace = self.spec.target_namespace.as_deref();
        Some(ContentKeyPrefix::new(self.digest?, account, namespace))
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::plan::inventory::{ContentKey, InstallationRecord, InstalledContent};
    use bundle_core::plan::steps::InstallStep;
    use serde_json::json;

    use super::*;

    const OLD: &str = "sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752";
    const NEW: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn object(paused: bool) -> Value {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "metadata": {"name": "web", "uid": "u-1", "generation": 1},
            "spec": {
                "provisionerClassName": "c", "paused": paused,
                "serviceAccount": {"namespace": "team-a", "name": "deployer"},
                "template": {"spec": {"provisionerClassName": "c", "source": {"type": "image", "image": {
                    "ref": format!("registry.example.com/web@{OLD}")}}}},
            },
            "status": {
                "activeBundle": "web-1", "observedGeneration": 1, "installed": {"digest": OLD},
                "conditions": [{"type": "Installed", "status": "True", "reason": "r", "message": "", "observedGeneration": 1,
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            },
        })
    }

    fn inventory() -> InventoryFact {
        let mut inventory = Inventory::new("web");
        let text = format!("{OLD} system:serviceaccount:team-a:deployer - x");
        let installation = ContentKey::from(text);
        inventory.installation.clone_from(&installation);
        let mut record = InstallationRecord::default();
        record.installed = Some(InstalledContent {
            installation,
            ..InstalledContent::default()
        });
        inventory.record = Some(record);
        InventoryFact::Known(Box::new(inventory))
    }

    fn observed(object: &Value, digest: &str, inventory: &InventoryFact) -> ObservedDeployment {
        let item: BundleDeployment = serde_json::from_value(object.clone()).unwrap();
        let known = KnownObjects {
            object,
            item: &item,
            spec: &CheckedDeploymentSpec::parse(&object["spec"]).unwrap(),
            class: None,
            digest: Some(digest),
            bundle: Some("web-1"),
            inventory,
        };
        known.observed()
    }

    #[test]
    fn content_is_installed_by_the_record_of_the_inventory() {
        let same = observed(&object(false), OLD, &inventory());
        assert!(same.is_installed && same.was_installed && same.is_active);
        assert_eq!(same.in_place, AppliedContent::Wanted);
        let other = observed(&object(false), NEW, &inventory());
        assert!(!other.is_installed && !other.was_installed);
        assert_eq!(other.in_place, AppliedContent::Other);
        assert!(other.installation().contains(&InstallStep::Apply));
        // If only the status names the content, and the inventory does not, the content is not
        // installed.
        let empty = InventoryFact::Known(Box::new(Inventory::new("web")));
        assert!(!observed(&object(false), OLD, &empty).is_installed);
    }

    #[test]
    fn status_replaces_an_inventory_without_permission() {
        let same = observed(&object(false), OLD, &InventoryFact::Unread);
        assert!(same.is_installed && same.is_decided);
        assert_eq!(same.installation(), []);
        assert!(!observed(&object(false), NEW, &InventoryFact::Unread).is_installed);
    }

    #[test]
    fn paused_deployment_has_no_steps() {
        let paused = observed(&object(true), NEW, &inventory());
        assert_eq!(paused.installation(), []);
    }
}
