//! What an inventory records about the installation itself: what was installed last, the history, and the seals of the objects it came from. The status shows
//! the same for people; whoever may write a status cannot change what is decided.
//! Not here: which objects belong to it ([`super::Inventory`]).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::plan::decision::Decisions;
use crate::plan::pivot::Revision;

/// The longest seal that is remembered, in bytes.
const MAX_SEAL: usize = 32 * 1024;

/// What is known of the installation of one BundleDeployment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstallationRecord {
    /// What was installed completely, if anything was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed: Option<InstalledContent>,
    /// True from before the first object of an installation is applied until it is recorded as complete.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unfinished: bool,
    /// What is and was installed, newest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub revisions: Vec<Revision>,
    /// The class that decided about the content.
    #[serde(default, skip_serializing_if = "Decisions::is_empty")]
    pub decisions: Decisions,
    /// By uid of the BundleDeployment and of its Bundles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    seals: BTreeMap<String, RememberedSeals>,
}

/// What was installed completely.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InstalledContent {
    /// Content, identity and settings, in the form of [`super::Inventory::installation`].
    pub installation: String,
    /// Name of the Bundle.
    pub bundle: String,
    /// Uid of the Bundle.
    pub bundle_uid: String,
    /// Digest of the content.
    pub digest: String,
    /// Version of the package.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How many objects were applied.
    pub objects: u64,
    /// Namespace of the ServiceAccount that applied them.
    pub account_namespace: String,
    /// Name of the ServiceAccount that applied them.
    pub account_name: String,
    /// Who asked for it.
    pub requested_by: String,
    /// Who approved it, where the class asks for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approved_by: Option<String>,
    /// [`crate::plan::drift::combined`] of all objects after the last apply, if that is known of each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields_digest: Option<String>,
}

/// The seals of one object, for the case that somebody removes them from its status. They are under a MAC, and count for that object alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RememberedSeals {
    /// `status.admission.seal`.
    pub admission: String,
    /// `status.content.seal` of a Bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

impl InstallationRecord {
    /// The seals of the object with this uid.
    pub fn seals(&self, uid: &str) -> Option<&RememberedSeals> {
        self.seals.get(uid)
    }

    /// Remembers the seals of these objects and of the Bundle that is installed, and forgets all others. Seals that are too long are not remembered.
    pub fn remember<'a>(&mut self, objects: impl IntoIterator<Item = (&'a str, RememberedSeals)>) {
        let installed = self
            .installed
            .as_ref()
            .map(|installed| &installed.bundle_uid);
        let mut seals = std::mem::take(&mut self.seals);
        seals.retain(|uid, _| Some(uid) == installed);
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

    fn seals(text: &str) -> RememberedSeals {
        RememberedSeals {
            admission: text.to_owned(),
            content: None,
        }
    }

    #[test]
    fn remembers_the_wanted_and_the_installed_bundle_and_nothing_else() {
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
    }

    #[test]
    fn remembers_no_seal_that_is_too_long() {
        let mut record = InstallationRecord::default();
        record.remember([("deployment", seals(&"a".repeat(MAX_SEAL + 1)))]);
        assert_eq!(record.seals("deployment"), None);
    }
}
