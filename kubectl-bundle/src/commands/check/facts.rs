//! The facts about one object, in the form that the judge reads.
//! Not here: finding them out (lookup).

use bundle_core::diagnostic::Finding;
use bundle_core::package;
use bundle_core::review::target::default_state_namespace;
use bundle_core::review::{ContentFact, Facts};
use bundle_oci::registry::Looked;
use bundle_trust::proof;

use super::gathered::Gathered;
use super::lookup::Lookup;

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
