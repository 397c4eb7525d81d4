//! The history of a BundleDeployment, between its status and the rules about it.
//! Not here: the rules (bundle_core::plan::pivot).

use bundle_api::deployment_status::{Revision, RevisionState};
use bundle_core::plan::pivot;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::deployment::Turn;
use super::said;

impl Turn<'_> {
    pub(super) fn core_revisions(&self) -> Vec<pivot::Revision> {
        self.status.revisions.iter().map(from_api).collect()
    }

    /// Puts the content that has just been installed at the head of the history.
    pub(super) fn add_revision(&mut self, bundle: &str, digest: &str, version: Option<&str>) {
        let now = said::now().to_string();
        let history = self.spec.rollout.history;
        self.status.revisions = pivot::installed(
            &self.core_revisions(),
            bundle,
            digest,
            version,
            history,
            &now,
        )
        .into_iter()
        .map(to_api)
        .collect();
    }
}

fn from_api(revision: &Revision) -> pivot::Revision {
    pivot::Revision {
        bundle: revision.bundle.clone(),
        digest: revision.digest.clone(),
        version: revision.version.clone(),
        installed_at: revision
            .installed_at
            .as_ref()
            .map(|time| time.0.to_string())
            .unwrap_or_default(),
        state: match revision.state {
            RevisionState::Active => pivot::ACTIVE,
            RevisionState::Superseded => pivot::SUPERSEDED,
            RevisionState::Failed => "Failed",
        }
        .to_owned(),
    }
}

fn to_api(revision: pivot::Revision) -> Revision {
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
