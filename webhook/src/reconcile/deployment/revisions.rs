//! The history of a BundleDeployment in its inventory and its status. The rules are in
//! `bundle_core::plan::pivot`.

use bundle_api::deployment_status::{Revision, RevisionState};
use bundle_core::plan::pivot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::reconcile::deployment::controller::DeploymentReconcile;
use crate::reconcile::status::condition_set;

impl DeploymentReconcile<'_> {
    pub(in crate::reconcile) fn core_revisions(&self) -> Vec<pivot::Revision> {
        let record = self.inventory.record.as_ref();
        record.map_or_else(Vec::new, |record| record.revisions.clone())
    }

    /// Returns the history with the newly installed content as its first entry.
    pub(in crate::reconcile) fn next_revisions(
        &self,
        bundle: &str,
        digest: &str,
        version: Option<&str>,
    ) -> Vec<pivot::Revision> {
        let now = condition_set::now().to_string();
        let history = self.spec.rollout.history;
        pivot::installed(
            &self.core_revisions(),
            bundle,
            digest,
            version,
            history,
            &now,
        )
    }
}

pub(in crate::reconcile) fn to_api(revision: pivot::Revision) -> Revision {
    Revision {
        bundle: revision.bundle,
        digest: revision.digest,
        version: revision.version,
        installed_at: revision.installed_at.parse().ok().map(Time),
        state: match revision.state.as_str() {
            pivot::ACTIVE => RevisionState::Active,
            pivot::SUPERSEDED => RevisionState::Superseded,
            _ => RevisionState::Failed,
        },
    }
}
