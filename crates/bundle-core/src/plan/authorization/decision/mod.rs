//! Decisions of ProvisionerClasses. A decision records the class and the terms under which content
//! was admitted for installation, and the objects that the decision covers. A decision has no
//! effect for another class, or after the terms of its class changed. Decisions are stored in the
//! inventory ([`crate::plan::inventory::InstallationRecord`]).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::json;
use crate::object::ObjectId;
use crate::plan::content_key::ContentKeyPrefix;
use crate::policy::ClassSignatures;
use crate::reference::Digest;
use crate::review::class::{Approval, Authorization, Class};

/// Class and terms that a decision is based on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decider {
    /// Name of the ProvisionerClass.
    class: String,
    /// Uid of the class.
    uid: String,
    /// Digest of the fields of the class that restrict content and requesters.
    terms: Digest,
    /// [`approval_terms`](crate::review::approval_terms) of the BundleDeployment, if the class
    /// requires approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    approved: Option<Digest>,
}

impl Decider {
    /// Returns the class and terms for a decision on a BundleDeployment with these approval terms.
    pub fn new(class: &Class, approval_terms: &Digest) -> Self {
        let account = class.service_account.as_ref();
        let mut sources = vec![
            json!(class.source_types),
            json!(class.source_hosts),
            json!(class.private_addresses),
        ];
        // Earlier versions of this project had no `insecureHosts`. If the list is empty, the terms
        // are equal to the terms that these versions recorded.
        if !class.insecure_hosts.is_empty() {
            sources.push(json!(class.insecure_hosts));
        }
        let terms = json!({
            "authorization": class.authorization == Authorization::Class,
            "approval": match class.approval {
                Approval::None => "None",
                Approval::ByAnyone => "ByAnyone",
                Approval::ByAnotherPerson => "ByAnotherPerson",
            },
            "signatures": class.signatures == ClassSignatures::Required,
            "sources": sources,
            "targets": [json!(class.namespaces), json!(class.cluster_scoped)],
            "serviceAccount": account.map(|account| format!("{}/{}", account.namespace, account.name)),
        });
        Self {
            class: class.name.clone(),
            uid: class.uid.clone(),
            terms: json::digest(&terms),
            approved: (class.approval != Approval::None).then(|| approval_terms.clone()),
        }
    }
}

/// Decision of a class to install one content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Decision {
    /// Content, ServiceAccount and namespace.
    content: ContentKeyPrefix,
    /// Class and terms of the decision. `None` if an earlier version of this project installed the
    /// content without a record of class and terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by: Option<Decider>,
}

impl Decision {
    fn is_by(&self, by: &Decider) -> bool {
        self.by.as_ref() == Some(by)
    }
}

/// Decisions about the content of one BundleDeployment. Inventories of earlier versions of this
/// project contain no decisions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Decisions {
    /// Up to three decisions, newest last:
    /// - the decision about the installed content
    /// - a later decision of another class, or of the same class with other terms
    /// - the decision about the content of the last started installation
    #[serde(default)]
    of_content: Vec<Decision>,
    /// Keys of recorded objects that are not part of the installed content. These objects come from
    /// content that another class authorized, or that the same class authorized with other terms.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    leftovers: BTreeSet<String>,
}

/// Objects that the current class authorized.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DecidedObjects {
    /// The class authorized no objects.
    #[default]
    None,
    /// The class authorized all objects, except the objects with these keys.
    AllBut(BTreeSet<String>),
}

impl DecidedObjects {
    /// The class authorized all objects.
    pub const ALL: Self = Self::AllBut(BTreeSet::new());

    /// Returns `true` if the class authorized the object.
    pub fn has(&self, id: &ObjectId) -> bool {
        match self {
            Self::None => false,
            Self::AllBut(others) => others.is_empty() || !others.contains(&id.to_string()),
        }
    }
}

impl Decisions {
    /// Returns true if no decision is recorded.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns `true` if `by` authorized `content`.
    pub fn is_decided(&self, content: &ContentKeyPrefix, by: &Decider) -> bool {
        let mut of_content = self.of_content.iter();
        of_content.any(|decision| decision.content == *content && decision.is_by(by))
    }

    /// Returns the recorded objects that `by` authorized.
    pub fn objects(&self, by: &Decider) -> DecidedObjects {
        let is_decided = !self.of_content.is_empty()
            && self.of_content.iter().all(|decision| decision.is_by(by));
        if is_decided {
            DecidedObjects::AllBut(self.leftovers.clone())
        } else {
            DecidedObjects::None
        }
    }

    /// Records that `by` authorized `content`. The caller calls this function before the first
    /// object of `content` is applied. `installed` is the completely installed content.
    /// `has_objects` is true if the inventory records any object.
    pub fn begin(
        &mut self,
        content: &ContentKeyPrefix,
        by: &Decider,
        installed: Option<&ContentKeyPrefix>,
        has_objects: bool,
    ) {
        if self.of_content.is_empty() && has_objects {
            self.of_content.push(Decision {
                content: installed.cloned().unwrap_or_default(),
                by: None,
            });
        }
        let (mut kept, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.of_content)
            .into_iter()
            .partition(|decision| {
                Some(&decision.content) == installed && decision.content != *content
            });
        // One decision by another `Decider` is enough to show that `by` did not authorize all
        // objects.
        let other = others.into_iter().find(|decision| !decision.is_by(by));
        kept.extend(other);
        kept.push(Decision {
            content: content.clone(),
            by: Some(by.clone()),
        });
        self.of_content = kept;
    }

    /// Records that `content`, which `by` authorized, is installed completely. `inventory` has the
    /// keys of all recorded objects, and `wanted` has the keys of the objects of the content.
    pub fn conclude<'k>(
        &mut self,
        content: &ContentKeyPrefix,
        by: &Decider,
        inventory: impl Iterator<Item = &'k str>,
        wanted: &BTreeSet<&str>,
    ) {
        let all = self.of_content.is_empty()
            || self.of_content.iter().any(|decision| !decision.is_by(by));
        self.leftovers = inventory
            .filter(|key| !wanted.contains(key))
            .filter(|key| all || self.leftovers.contains(*key))
            .map(str::to_owned)
            .collect();
        self.of_content = vec![Decision {
            content: content.clone(),
            by: Some(by.clone()),
        }];
    }
}

#[cfg(test)]
mod tests;
