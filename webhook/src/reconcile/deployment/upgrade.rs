//! Status fields about new content that is not completely installed. No decision depends on these
//! fields. Decisions use the records of `installation_record`.

use bundle_api::deployment::status::Upgrade;

use crate::reconcile::bundle::generated::GeneratedBundle;
use crate::reconcile::content::objects::PreparedObject;
use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::error::MAX_LISTED;
use crate::reconcile::install::executor::ApplyResults;

impl DeploymentReconcile<'_> {
    /// Sets the status field `upgrade` if the content of `generated` is not installed yet and other
    /// content is installed. Clears the field otherwise.
    pub(in crate::reconcile) fn show_upgrade(&mut self, generated: &GeneratedBundle) {
        let active = self.status.active_bundle.as_deref();
        let Some(content) = &generated.content else {
            self.status.upgrade = None;
            return;
        };
        if active.is_none_or(|active| active == generated.name) {
            self.status.upgrade = None;
            return;
        }
        let shown = self.status.upgrade.as_ref();
        if shown.is_none_or(|shown| shown.bundle != generated.name) {
            self.status.upgrade = Some(Upgrade {
                bundle: generated.name.clone(),
                digest: content.digest.to_string(),
                version: content.version.clone(),
                ..Upgrade::default()
            });
        }
    }

    /// Sets the applied objects in the status field `upgrade` after a failure. Includes objects
    /// that earlier attempts applied.
    pub(in crate::reconcile) fn show_applied(
        &mut self,
        generated: &GeneratedBundle,
        items: &[PreparedObject],
        done: &ApplyResults,
    ) {
        self.show_upgrade(generated);
        let Some(upgrade) = &mut self.status.upgrade else {
            return;
        };
        upgrade.objects = Some(items.len() as u64);
        let mut applied: Vec<String> = done.uids.keys().cloned().collect();
        let count = (applied.len() as u64).max(upgrade.applied.unwrap_or_default());
        upgrade.applied = Some(count);
        applied.append(&mut upgrade.applied_objects);
        applied.sort();
        applied.dedup();
        applied.truncate(MAX_LISTED);
        upgrade.applied_objects = applied;
    }
}
