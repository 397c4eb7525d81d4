//! Record of the installation in an inventory: the installed content, the history, and the seals of
//! admission (`status.admission.seal`). The status shows the same data to users, but a user who
//! writes the status cannot change decisions. Recorded objects are in [`super::Inventory`].

use std::collections::BTreeMap;

use bundle_api::deployment::status::Revision;
use serde::{Deserialize, Serialize};

use super::ContentKey;
use crate::configuration::json_bytes;
use crate::plan::{decision::Decisions, package_rules::InstalledPackage, rollout::RolloutRecord};

/// Largest size of recorded seals of one object, in bytes.
const MAX_SEAL: usize = 32 * 1024;

/// Record of the installation of one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstallationRecord {
    /// Completely installed content, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<InstalledContent>,
    /// True while an installation is not recorded as complete. The field is set before the first
    /// object of the installation is applied.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    /// Installed and earlier revisions, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
    /// Decisions of classes about the content.
    #[serde(default, skip_serializing_if = "Decisions::is_empty")]
    pub decisions: Decisions,
    /// Rollout of the content.
    #[serde(default, skip_serializing_if = "RolloutRecord::is_empty")]
    pub rollout: RolloutRecord,
    /// Seals by uid of the BundleDeployment and of its Bundles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seals: BTreeMap<String, RecordedSeals>,
}

/// Completely installed content.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstalledContent {
    /// Key of the installation.
    pub installation: ContentKey,
    /// Name of the Bundle.
    pub bundle: String,
    /// Uid of the Bundle.
    pub bundle_uid: String,
    /// Digest of the content.
    pub digest: String,
    /// Name of the package; `None` for content without `bundle.yaml`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// Version of the package; `None` if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of applied objects.
    pub objects: u64,
    /// Namespace of the ServiceAccount that applied the objects.
    pub account_namespace: String,
    /// Name of the ServiceAccount that applied the objects.
    pub account_name: String,
    /// Requesters of the content, as text for users.
    pub requested_by: String,
    /// Approver of the content, if the class requires approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// [`crate::review::approval_terms`] of the spec with which the content was installed. `None`
    /// in records of earlier versions of this project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terms: Option<String>,
    /// [`crate::plan::drift::combined`] of all objects after the last apply; `None` if the state of
    /// an object is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_digest: Option<String>,
}

/// Seals of one object. The seals are stored because a user can remove them from the status of the
/// object. Each seal has a MAC and is valid for that object only.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RecordedSeals {
    /// Value of `status.admission.seal`.
    pub admission: String,
    /// Value of `status.content.seal`; `None` if the object has no such seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl InstalledContent {
    /// Returns the package of the content; `None` for content without `bundle.yaml`.
    pub fn package(&self) -> Option<InstalledPackage> {
        Some(InstalledPackage {
            name: self.package.clone()?,
            version: self.version.clone(),
            digest: self.digest.clone(),
        })
    }
}

impl InstallationRecord {
    /// Returns the size of the recorded templates and configurations as JSON, in bytes.
    pub(super) fn request_bytes(&self) -> usize {
        let configs = self.revisions.iter().filter_map(|one| one.config.as_ref());
        let configs: usize = configs.map(json_bytes).sum();
        configs + self.rollout.request_bytes()
    }

    /// Returns the seals of the object with this uid; `None` if no seals are recorded.
    pub fn seals(&self, uid: &str) -> Option<&RecordedSeals> {
        self.seals.get(uid)
    }

    /// Records the seals of these objects. Keeps the recorded seals of the installed Bundle, and of
    /// the Bundle that was healthy last. Removes all other seals. Seals that exceed the size limit
    /// are not recorded.
    pub fn remember<'a>(&mut self, objects: impl IntoIterator<Item = (&'a str, RecordedSeals)>) {
        let installed = self
            .installed
            .as_ref()
            .map(|installed| &installed.bundle_uid);
        let healthy = self.rollout.healthy.as_ref();
        let healthy = healthy.map(|healthy| &healthy.bundle_uid);
        let mut seals = std::mem::take(&mut self.seals);
        seals.retain(|uid, _| Some(uid) == installed || Some(uid) == healthy);
        for (uid, object) in objects {
            let length = object.admission.len() + object.content.as_ref().map_or(0, String::len);
            if !uid.is_empty() && length <= MAX_SEAL {
                seals.insert(uid.to_owned(), object);
            }
        }
        self.seals = seals;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::rollout::HealthyContent;

    fn seals(text: &str) -> RecordedSeals {
        RecordedSeals {
            admission: text.to_owned(),
            content: None,
        }
    }

    #[test]
    fn retains_only_seals_of_the_given_objects_and_of_installed_and_healthy_bundles() {
        let mut record = InstallationRecord::default();
        record.remember([("deployment", seals("a")), ("first", seals("b"))]);
        record.installed = Some(InstalledContent {
            bundle_uid: "first".to_owned(),
            ..InstalledContent::default()
        });
        record.remember([("deployment", seals("c")), ("second", seals("d"))]);
        record.remember([("deployment", seals("c")), ("third", seals("e"))]);
        assert_eq!(record.seals("deployment"), Some(&seals("c")));
        assert_eq!(record.seals("first"), Some(&seals("b")));
        assert_eq!(record.seals("second"), None);
        assert_eq!(record.seals("third"), Some(&seals("e")));
        record.rollout.healthy = Some(HealthyContent {
            bundle_uid: "first".to_owned(),
            ..HealthyContent::default()
        });
        record.installed = None;
        record.remember([("deployment", seals("c"))]);
        assert_eq!(record.seals("first"), Some(&seals("b")));
        assert_eq!(record.seals("third"), None);
    }

    #[test]
    fn ignores_seals_beyond_the_size_limit() {
        let mut record = InstallationRecord::default();
        record.remember([("deployment", seals(&"a".repeat(MAX_SEAL + 1)))]);
        assert_eq!(record.seals("deployment"), None);
    }
}
