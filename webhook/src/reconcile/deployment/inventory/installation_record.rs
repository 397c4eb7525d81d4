//! The record of an installation in the inventory, and the status fields that are computed from the
//! record. Decisions use only the record, because other clients can write the status.

use bundle_api::ServiceAccountName;
use bundle_api::deployment::status::Installed;
use bundle_core::plan::inventory::{
    ContentKey, InstallationRecord, InstalledContent, RecordedSeals,
};
use bundle_core::reference::Digest;
use bundle_core::review::class::Approval;
use bundle_core::review::{Kind, Requester, approval_terms};

use crate::reconcile::bundle::generated::GeneratedBundle;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::{DeploymentReconcile, InstallRequest};
use crate::reconcile::error::ReconcileError;
use crate::reconcile::seal;

impl DeploymentReconcile<'_> {
    /// Returns the completely installed content. Returns `None` if no content is completely
    /// installed.
    pub(in crate::reconcile) fn installed_content(&self) -> Option<&InstalledContent> {
        self.inventory.record.as_ref()?.installed.as_ref()
    }

    /// Returns true if installed objects can be restored with the settings in the spec of `object`.
    /// The condition is that the class requires no approval, or that the approved settings (terms)
    /// have not changed since the installation.
    pub(in crate::reconcile) fn can_restore_installed(&self) -> bool {
        self.class.approval == Approval::None
            || self
                .installed_content()
                .and_then(|installed| installed.terms.as_ref())
                .is_some_and(|terms| *terms == self.present_terms())
    }

    fn present_terms(&self) -> String {
        approval_terms(&self.object.data["spec"]).to_string()
    }

    /// Returns the requesters that the inventory records for the content of this reconcile. For an
    /// automatic rollback, these are all requesters of the spec, which include the requesters of
    /// the former content.
    fn recorded_requesters(&self) -> Vec<Requester> {
        let requesters = if self.is_rollback {
            self.parts.content()
        } else {
            self.parts.template_and_config()
        };
        InstalledContent::recorded_requesters(&requesters)
    }

    /// Records the current requesters of the content, if the recorded installation has this key.
    /// The requesters can change without an installation: another user writes the same content, or
    /// sets the annotation `core.rukpak.io/admit`.
    pub(in crate::reconcile) async fn record_requesters(
        &mut self,
        key: &ContentKey,
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        if let Some(installed) = &mut record.installed
            && installed.installation == *key
        {
            installed.requested_by.clone_from(&self.requester.user);
            installed.requesters = self.recorded_requesters();
        }
        self.save_record(record).await
    }

    /// Sets the status fields that are computed from the record. If no record exists, these fields
    /// stay unchanged. No decision depends on these fields.
    pub(in crate::reconcile) fn show_record(&mut self) {
        let Some(record) = &self.inventory.record else {
            return;
        };
        let installed = record.installed.as_ref();
        self.status.active_bundle = installed.map(|installed| installed.bundle.clone());
        self.status.installed = installed.map(installed_status);
        self.status.revisions.clone_from(&record.revisions);
    }

    /// Records that the content is completely installed. The same write records the seals.
    pub(in crate::reconcile) async fn record(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
        fields: Option<Digest>,
    ) -> Result<(), ReconcileError> {
        let generated = request.generated;
        let content = generated.content.as_ref();
        let version = content.and_then(|content| content.version.clone());
        let uid = generated.object.metadata.uid.clone();
        let mut record = self.inventory.record.clone().unwrap_or_default();
        record.is_unfinished = false;
        record.revisions =
            self.next_revisions(&generated.name, request.digest(), version.as_deref());
        record.installed = Some(InstalledContent {
            installation: self.content_key(request),
            bundle: generated.name.clone(),
            bundle_uid: uid.unwrap_or_default(),
            digest: request.digest().to_owned(),
            package: self
                .package_rules
                .as_ref()
                .map(|rules| rules.name().to_owned()),
            version,
            objects: items.len() as u64,
            account_namespace: request.account.namespace.to_string(),
            account_name: request.account.name.to_string(),
            requested_by: self.requester.user.clone(),
            requesters: self.recorded_requesters(),
            approved_by: self.approved_by.clone(),
            terms: Some(self.present_terms()),
            fields_digest: fields.map(|digest| digest.to_string()),
        });
        self.conclude_decision(&mut record, request, items);
        self.note_complete(&mut record, request);
        self.note_seals(&mut record, generated);
        self.save_record(record).await
    }

    /// Records that the class with its current terms authorized this content. Also records the
    /// approved settings of the spec. Called if the content is already completely installed.
    pub(in crate::reconcile) async fn record_decision(
        &mut self,
        request: &InstallRequest<'_>,
        items: &[PreparedObject],
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        if let Some(installed) = &mut record.installed {
            installed.terms = Some(self.present_terms());
        }
        self.conclude_decision(&mut record, request, items);
        self.save_record(record).await
    }

    /// Records the digest over the applied states of all objects. Called after objects were
    /// restored or verified.
    pub(in crate::reconcile) async fn record_fields(
        &mut self,
        fields: Option<Digest>,
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        if let Some(installed) = &mut record.installed {
            installed.fields_digest = fields.map(|digest| digest.to_string());
        }
        self.save_record(record).await
    }

    /// Records the seals of the BundleDeployment and of its Bundle, if an installation record
    /// exists. The seals are recorded because other clients can remove the seals from the status.
    pub(in crate::reconcile) async fn remember_seals(
        &mut self,
        generated: &GeneratedBundle,
    ) -> Result<(), ReconcileError> {
        let Some(mut record) = self.inventory.record.clone() else {
            return Ok(());
        };
        self.note_seals(&mut record, generated);
        self.save_record(record).await
    }

    /// Records in `record` the seals of the BundleDeployment and of its Bundle. Does nothing if a
    /// seal is missing, because the write of the seal starts another reconcile.
    fn note_seals(&self, record: &mut InstallationRecord, generated: &GeneratedBundle) {
        let (ctx, bundle) = (self.ctx, &generated.object);
        let admission = seal::admission_text(ctx, self.requested.object, Kind::BundleDeployment);
        let of_bundle = seal::admission_text(ctx, bundle, Kind::Bundle);
        let (Some(admission), Some(of_bundle)) = (admission, of_bundle) else {
            return;
        };
        let content = generated.content.as_ref();
        let deployment = RecordedSeals {
            admission,
            content: None,
        };
        let bundle_seals = RecordedSeals {
            admission: of_bundle,
            content: content.map(|content| seal::content_text(ctx, bundle, content)),
        };
        record.remember([
            (self.uid(), deployment),
            (
                bundle.metadata.uid.as_deref().unwrap_or_default(),
                bundle_seals,
            ),
        ]);
    }

    pub(in crate::reconcile) async fn save_record(
        &mut self,
        record: InstallationRecord,
    ) -> Result<(), ReconcileError> {
        if self.inventory.record.as_ref() == Some(&record) {
            return Ok(());
        }
        let mut inventory = (*self.inventory).clone();
        inventory.record = Some(record);
        self.save_inventory(inventory).await
    }
}

fn installed_status(installed: &InstalledContent) -> Installed {
    Installed {
        digest: installed.digest.clone(),
        version: installed.version.clone(),
        objects: Some(installed.objects),
        installed_as: Some(ServiceAccountName {
            namespace: installed.account_namespace.clone(),
            name: installed.account_name.clone(),
        }),
        requested_by: Some(installed.requested_by.clone()),
        approved_by: installed.approved_by.clone(),
        fields_digest: installed.fields_digest.clone(),
    }
}
