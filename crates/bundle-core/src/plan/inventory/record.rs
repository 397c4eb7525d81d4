//! Record of the installation in an inventory: the installed content, the history, and the seals of
//! admission (`status.admission.seal`). The status shows the same data to users. Decisions use only
//! this record, because users can write the status. Recorded objects are in [`super::Inventory`].

use std::collections::BTreeMap;

use bundle_api::deployment::status::Revision;
use serde::{Deserialize, Serialize};

use super::ContentKey;
use crate::json;
use crate::plan::{decision::Decisions, package_rules::InstalledPackage, rollout::RolloutRecord};
use crate::review::{PartRequesters, Requester};

/// Maximum size of the recorded seals of one object, in bytes.
const MAX_SEAL: usize = 32 * 1024;
/// Maximum size of the recorded requesters of one content as JSON, in bytes.
const MAX_REQUESTERS: usize = 32 * 1024;

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
    /// User name of the requester of the template.
    pub requested_by: String,
    /// Requesters of template and configuration, the requester of the template first. The list is
    /// empty in records of earlier versions of this project, and if the requesters exceed the size
    /// limit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requesters: Vec<Requester>,
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
    /// Returns `requesters` as [`Self::requesters`] records them.
    pub fn recorded_requesters(requesters: &[&Requester]) -> Vec<Requester> {
        if requester_bytes(requesters.iter().copied()) > MAX_REQUESTERS {
            return Vec::new();
        }
        requesters.iter().copied().cloned().collect()
    }

    /// Returns the requesters of this content who are not requesters of the content of the spec.
    /// While the spec requests other content, a write of this content needs the permissions of
    /// these requesters and of the requesters of the spec.
    ///
    /// If only the user name of the requester is recorded, permissions cannot be checked for this
    /// user. In this case, the function returns `None` if no requester of the spec has this name.
    pub fn departed_requesters(&self, spec: &PartRequesters) -> Option<Vec<Requester>> {
        if self.requesters.is_empty() {
            let mut present = spec.content().into_iter();
            let is_present = present.any(|requester| requester.user == self.requested_by);
            return is_present.then(Vec::new);
        }
        let departed = spec.departed(&self.requesters).into_iter();
        Some(departed.cloned().collect())
    }

    /// Returns the package of the content; `None` for content without `bundle.yaml`.
    pub fn package(&self) -> Option<InstalledPackage> {
        Some(InstalledPackage {
            name: self.package.clone()?,
            version: self.version.clone(),
            digest: self.digest.clone(),
        })
    }
}

/// Returns the size of requesters as JSON, in bytes.
fn requester_bytes<'a>(requesters: impl Iterator<Item = &'a Requester>) -> usize {
    requesters.map(json::length).fold(0, usize::saturating_add)
}

impl InstallationRecord {
    /// Returns the size of the recorded templates, configurations and requesters as JSON, in bytes.
    pub(super) fn request_bytes(&self) -> usize {
        let configs = self.revisions.iter().filter_map(|one| one.config.as_ref());
        let configs: usize = configs.map(json::length).sum();
        let installed = self.installed.iter();
        let requesters = requester_bytes(installed.flat_map(|one| &one.requesters));
        configs
            .saturating_add(requesters)
            .saturating_add(self.rollout.request_bytes())
    }

    /// Returns the seals of the object with this uid; `None` if no seals are recorded.
    pub fn seals(&self, uid: &str) -> Option<&RecordedSeals> {
        self.seals.get(uid)
    }

    /// Returns the uids of all objects whose seals are recorded.
    pub fn sealed_uids(&self) -> impl Iterator<Item = &str> {
        self.seals.keys().map(String::as_str)
    }

    /// Returns the digests of the installed content, and of the content that was healthy last.
    pub fn content_digests(&self) -> impl Iterator<Item = &str> {
        let installed = self.installed.iter();
        let healthy = self.rollout.healthy.iter();
        installed
            .map(|installed| installed.digest.as_str())
            .chain(healthy.map(|healthy| healthy.content.digest.as_str()))
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
    use crate::review::ChangedParts;

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
        let sealed: Vec<&str> = record.sealed_uids().collect();
        assert_eq!(sealed, ["deployment", "first", "third"]);
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
    fn installed_and_healthy_contents_are_recorded() {
        let mut record = InstallationRecord::default();
        let digests = |record: &InstallationRecord| -> Vec<String> {
            record.content_digests().map(str::to_owned).collect()
        };
        assert!(digests(&record).is_empty());
        record.installed = Some(InstalledContent {
            digest: "sha256:a".to_owned(),
            ..InstalledContent::default()
        });
        assert_eq!(digests(&record), ["sha256:a"]);
        let mut healthy = HealthyContent::default();
        healthy.content.digest = "sha256:b".to_owned();
        record.rollout.healthy = Some(healthy);
        assert_eq!(digests(&record), ["sha256:a", "sha256:b"]);
    }

    fn person(user: &str) -> Requester {
        Requester {
            user: user.to_owned(),
            groups: vec!["dev".to_owned()],
            ..Requester::default()
        }
    }

    #[test]
    fn write_of_installed_content_needs_permissions_of_departed_requesters() {
        let (ana, ben) = (person("ana"), person("ben"));
        let template = ChangedParts {
            template: true,
            ..ChangedParts::default()
        };
        let all = PartRequesters::all;
        let of = |requesters: &[&Requester]| InstalledContent {
            requested_by: "ana".to_owned(),
            requesters: InstalledContent::recorded_requesters(requesters),
            ..InstalledContent::default()
        };
        // Columns: requesters of the installed content, requesters of the spec, requesters of the
        // installed content who are not requesters of the spec.
        for (installed, spec, expected) in [
            (of(&[&ana]), all(&ana), Some(vec![])),
            (of(&[&ana]), all(&ben), Some(vec![ana.clone()])),
            (of(&[&ana, &ben]), all(&ben), Some(vec![ana.clone()])),
            (
                of(&[&ana]),
                all(&ana).changed_by(&ben, template),
                Some(vec![]),
            ),
            (of(&[&ben]), all(&ana), Some(vec![ben.clone()])),
            // An earlier version recorded only the name of the requester.
            (of(&[]), all(&ana), Some(vec![])),
            (of(&[]), all(&ana).changed_by(&ben, template), Some(vec![])),
            (of(&[]), all(&ben), None),
        ] {
            let found = installed.departed_requesters(&spec);
            assert_eq!(found, expected, "{installed:?} {spec:?}");
        }
    }

    #[test]
    fn requesters_beyond_the_size_limit_are_not_recorded() {
        let mut ana = person("ana");
        assert_eq!(
            InstalledContent::recorded_requesters(&[&ana]),
            [ana.clone()]
        );
        ana.groups = vec!["g".repeat(MAX_REQUESTERS)];
        let found = InstalledContent::recorded_requesters(&[&ana, &person("ben")]);
        assert!(found.is_empty());
    }

    #[test]
    fn ignores_seals_beyond_the_size_limit() {
        let mut record = InstallationRecord::default();
        record.remember([("deployment", seals(&"a".repeat(MAX_SEAL + 1)))]);
        assert_eq!(record.seals("deployment"), None);
    }
}
