//! What was found out for one object, and how the judge wants it.
//! Not here: finding it out (lookup).

use std::collections::BTreeMap;

use bundle_core::diagnostic::Finding;
use bundle_core::package;
use bundle_core::review::target::default_state_namespace;
use bundle_core::review::{Answer, ClassFact, ConfigMapFact, ContentFact, DeploymentFact, Facts};
use bundle_oci::registry::Looked;
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
    pub(super) may_read: BTreeMap<String, Answer>,
    pub(super) config_maps: BTreeMap<String, ConfigMapFact>,
}

impl Gathered {
    /// As the judge wants them, with what was seen of the image, if anybody looked.
    pub(super) fn facts<'a>(
        &self,
        lookup: &'a Lookup,
        looked: Option<&Result<Looked, Finding>>,
    ) -> Facts<'a> {
        let mut facts = Facts {
            requester: lookup.requester.clone(),
            classes: self.classes.clone(),
            may_use: self.may_use.clone(),
            may_impersonate: self.may_impersonate.clone(),
            may_approve: self.may_approve.clone(),
            deployment: self.deployment.clone(),
            may_read: self.may_read.clone(),
            config_maps: self.config_maps.clone(),
            server: lookup.server.clone(),
            system_namespace: lookup.system_namespace.clone(),
            state_namespace: default_state_namespace(&lookup.system_namespace),
            ..Facts::default()
        };
        match (looked, &lookup.policies) {
            (None, _) => {}
            (Some(_), Err(why)) => facts.content = ContentFact::PoliciesUnknown(why.clone()),
            (Some(Err(why)), Ok(policies)) => {
                facts.content = ContentFact::Unavailable(why.clone());
                facts.policies = proof::unexamined(policies, lookup.now);
            }
            (Some(Ok(looked)), Ok(policies)) => {
                let examined =
                    proof::examine(&looked.pinned, &looked.signatures, policies, lookup.now);
                facts.policies = examined.policies;
                facts.content = ContentFact::Found {
                    pinned: looked.pinned.clone(),
                    package: package::Facts::from_annotations(&looked.annotations).map(Box::new),
                    signatures: examined.found,
                };
            }
        }
        facts
    }
}
