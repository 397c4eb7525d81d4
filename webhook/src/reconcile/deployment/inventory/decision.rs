//! Records, before and after an installation, that the class authorized the content of a
//! BundleDeployment. `bundle_core::plan::decision` contains the rule.

use std::collections::BTreeSet;

use bundle_core::plan::decision::{DecidedObjects, Decider};
use bundle_core::plan::inventory::{InstallationRecord, Inventory};

use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::inventory::decision;

impl DeploymentReconcile<'_> {
    fn decider(&self) -> Decider {
        decision::decider(self.class, self.object)
    }

    /// Returns true if the inventory records that the class with its current terms authorized this
    /// content.
    pub(in crate::reconcile) fn is_decided(&self, request: &InstallRequest<'_>) -> bool {
        let content = self.installation_prefix(request);
        let record = self.inventory.record.as_ref();
        record.is_some_and(|record| record.decisions.is_decided(&content, &self.decider()))
    }

    /// Returns the recorded objects that the class with its current terms authorized.
    pub(in crate::reconcile) fn decided_objects(&self) -> DecidedObjects {
        decision::objects(&self.inventory, &self.decider())
    }

    /// Records in `inventory` that the class authorized this content. Called before the first
    /// object is applied.
    pub(in crate::reconcile) fn note_decision(
        &self,
        inventory: &mut Inventory,
        request: &InstallRequest<'_>,
    ) {
        let has_objects = inventory.objects().next().is_some();
        let record = inventory.record.get_or_insert_default();
        let installed = record.installed.as_ref();
        // The prefix contains only content digest, ServiceAccount and target namespace, so that
        // other settings are not compared.
        let installed = installed.map(|installed| installed.installation.prefix());
        let content = self.installation_prefix(request);
        let decisions = &mut record.decisions;
        decisions.begin(&content, &self.decider(), installed.as_ref(), has_objects);
    }

    /// Records in `record` that the class authorized this content. Called after the installation is
    /// complete.
    pub(in crate::reconcile) fn conclude_decision(
        &self,
        record: &mut InstallationRecord,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) {
        let wanted: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
        let keys = self.inventory.objects().map(|(key, _)| key);
        let content = self.installation_prefix(request);
        let decisions = &mut record.decisions;
        decisions.conclude(&content, &self.decider(), keys, &wanted);
    }
}
