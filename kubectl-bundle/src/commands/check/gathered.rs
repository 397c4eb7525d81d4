//! What was found out for one object, and how the judge wants it.
//! Not here: finding it out (lookup).

use std::collections::BTreeMap;

use bundle_core::diagnostic::Finding;
use bundle_core::package;
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::PinnedReference;
use bundle_core::review::{Answer, ClassFact, ConfigMapFact, ContentFact, DeploymentFact, Facts};
use bundle_trust::proof;

use super::lookup::Lookup;

/// What was found out for one object.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) classes: BTreeMap<String, ClassFact>,
    pub(super) may_use: BTreeMap<String, Answer>,
    pub(super) may_impersonate: Option<Answer>,
    pub(super) may_approve: Option<Answer>,
    pub(super) deployment: Option<DeploymentFact>,
    pub(super) config_maps: BTreeMap<String, ConfigMapFact>,
    pub(super) image: Option<Looked>,
}

/// What the registry said about an image.
pub(super) enum Looked {
    Unavailable(Finding),
    Found(Box<Seen>),
}

/// An image that was looked at.
pub(super) struct Seen {
    pub(super) pinned: PinnedReference,
    pub(super) package: Result<Box<package::Facts>, Finding>,
    pub(super) signatures: Result<Vec<RawSignature>, Unavailable>,
}

impl Gathered {
    /// As the judge wants them.
    pub(super) fn facts(self, lookup: &Lookup) -> Facts<'_> {
        let mut facts = Facts {
            requester: lookup.requester.clone(),
            classes: self.classes,
            may_use: self.may_use,
            may_impersonate: self.may_impersonate,
            may_approve: self.may_approve,
            deployment: self.deployment,
            config_maps: self.config_maps,
            server: lookup.server.clone(),
            system_namespace: lookup.system_namespace.clone(),
            ..Facts::default()
        };
        match self.image {
            None => {}
            Some(Looked::Unavailable(finding)) => match &lookup.policies {
                Ok(policies) => {
                    facts.content = ContentFact::Unavailable(finding);
                    facts.policies = proof::unexamined(policies, lookup.now);
                }
                Err(_) => facts.content = ContentFact::PoliciesUnknown(finding),
            },
            Some(Looked::Found(seen)) => {
                let Seen {
                    pinned,
                    package,
                    signatures,
                } = *seen;
                let policies = lookup.policies.as_deref().unwrap_or_default();
                let examined = proof::examine(&pinned, &signatures, policies, lookup.now);
                facts.policies = examined.policies;
                facts.content = ContentFact::Found {
                    pinned,
                    package,
                    signatures: examined.found,
                };
            }
        }
        facts
    }
}
