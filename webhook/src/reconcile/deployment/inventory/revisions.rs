//! The revisions (history) of a BundleDeployment in its inventory and its status. The rules are in
//! `bundle_core::plan::revisions`.

use bundle_api::deployment::status::Revision;
use bundle_core::plan::revisions::{self, InstalledRevision};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::reconcile::deployment_state::DeploymentReconcile;
use crate::reconcile::status::condition_set;

impl DeploymentReconcile<'_> {
    pub(in crate::reconcile) fn core_revisions(&self) -> Vec<Revision> {
        let record = self.inventory.record.as_ref();
        record.map_or_else(Vec::new, |record| record.revisions.clone())
    }

    /// Returns true if `spec.config` equals the configuration of the last installed revision.
    pub(in crate::reconcile) fn has_installed_config(&self) -> bool {
        let record = self.inventory.record.as_ref();
        let installed = record.and_then(|record| record.revisions.first());
        revisions::has_config(installed, self.config())
    }

    /// Returns the revisions with the newly installed content as the first entry.
    pub(in crate::reconcile) fn next_revisions(
        &self,
        bundle: &str,
        digest: &str,
        version: Option<&str>,
    ) -> Vec<Revision> {
        let new = InstalledRevision {
            bundle,
            digest,
            version,
            requested_by: &self.requester.user,
            config: self.config(),
        };
        let now = Time(condition_set::now());
        let history = self.spec.rollout.history;
        revisions::installed(&self.core_revisions(), &new, history, &now)
    }
}
