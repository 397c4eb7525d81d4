//! Reviews of updates of CustomResourceDefinitions that BundleDeployments have installed (RukPak:
//! `crdvalidator`). The API server sends only updates of definitions that have the label of
//! installed objects before or after the update. The rule is in `bundle_core::plan::crd_upgrade`.

use bundle_api::names::{FIELD_MANAGER, LABEL_OWNER_KIND, LABEL_OWNER_NAME};
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::names::{KubeName, NameKind};
use bundle_core::plan::crd_upgrade::guard::{DefinitionOwner, is_safe_update, judge_update};
use bundle_core::review::{CheckedDeploymentSpec, Kind, StampChange, Verdict};
use serde_json::Value;

use super::review::Request;
use super::stamps::stamping;
use super::{Admission, Lookups, rejections};
use crate::blocking;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "CustomResourceDefinition";

/// Returns true if the request updates a CustomResourceDefinition. Requests for its subresources do
/// not change its spec, and are not reviewed.
pub(super) fn is_update(request: &Request) -> bool {
    request.kind.group == GROUP
        && request.kind.kind == KIND
        && request.sub_resource.is_empty()
        && request.operation == "UPDATE"
}

/// Returns true for a dry run with the field manager of the pod. The pod and the plugin send such
/// dry runs as the requester, after they have compared the old and the new definition. A dry run
/// stores nothing.
fn is_dry_run_with_pod_manager(request: &Request) -> bool {
    let options = request.options.as_ref();
    let manager = options.map(|options| options.field_manager.as_str());
    request.dry_run == Some(true) && manager == Some(FIELD_MANAGER)
}

fn label<'v>(object: &'v Value, name: &str) -> Option<&'v str> {
    object["metadata"]["labels"][name].as_str()
}

/// Returns the finding for an unsafe update of a definition whose owner is unknown.
pub(super) fn owner_unknown(definition: &str, why: &str) -> Finding {
    let message = format!("cannot find the owner of CustomResourceDefinition {definition}: {why}");
    Finding::error(codes::review::CRD_OWNER_UNKNOWN, message)
        .hint("try again; no decision was made")
}

fn admitted(warnings: Findings) -> Verdict {
    Verdict::Admit {
        warnings,
        stamp: StampChange::None,
    }
}

impl<L: Lookups> Admission<L> {
    /// Returns the verdict on the update of a definition. Only the review of an unsafe update reads
    /// objects of the cluster. A failed read cannot delay or reject any other update.
    pub(super) async fn definition_update(&self, request: &Request) -> Verdict {
        let (live, new) = (&request.old_object, &request.object);
        let is_selected = [live, new]
            .into_iter()
            .any(|object| label(object, LABEL_OWNER_KIND) == Some(Kind::BundleDeployment.as_str()));
        if !is_selected
            || is_dry_run_with_pod_manager(request)
            || blocking::run(|| is_safe_update(live, new))
        {
            return admitted(Findings::default());
        }
        let deadline = request.deadline;
        let owner = deadline.run(self.owner_of_definition(request)).await;
        let findings = match owner {
            None => {
                let late = rejections::deadline_exceeded(deadline.limit());
                return Verdict::Unknown(late.into());
            }
            Some(Err(why)) => {
                return Verdict::Unknown(owner_unknown(&request.name, &why).into());
            }
            // No inventory records the definition. Therefore no BundleDeployment owns it, even if
            // it has the label.
            Some(Ok(None)) => return admitted(Findings::default()),
            Some(Ok(Some(owner))) => {
                let requester = request.requester.service_account();
                blocking::run(|| judge_update(live, new, &owner, requester))
            }
        };
        if findings.has_errors() {
            Verdict::Refuse(findings)
        } else {
            admitted(findings)
        }
    }

    /// Returns the owner of the definition according to the inventories. The labels only select the
    /// inventory that is read first. The spec of the BundleDeployment can allow unsafe updates. The
    /// result includes these exceptions only if a valid stamp or seal proves that this spec was
    /// reviewed.
    async fn owner_of_definition(
        &self,
        request: &Request,
    ) -> Result<Option<DefinitionOwner>, String> {
        let uid = request.old_object["metadata"]["uid"].as_str();
        let key = format!("{KIND}.{GROUP}/{}", request.name);
        let labelled = [&request.old_object, &request.object]
            .into_iter()
            .find_map(|object| label(object, LABEL_OWNER_NAME));
        // Only the uid is kept, because the BundleDeployment can be large, and the inventories are
        // read for one review at a time.
        let likely = match labelled {
            Some(name) => self.deployment_named(request, name).await?,
            None => None,
        };
        let likely = likely.and_then(|likely| uid_of(&likely).map(str::to_owned));
        let object = (key.as_str(), uid.unwrap_or_default());
        let (lookups, requester) = (&self.lookups, &request.requester);
        let recorded = lookups.recorded_owner(requester, object, likely.as_deref());
        let Some(recorded) = recorded.await.map_err(|finding| finding.message)? else {
            return Ok(None);
        };
        let owner = self.deployment_named(request, &recorded.deployment);
        // An inventory can exist for some time after its BundleDeployment was deleted.
        let is_owner = |found: &L::HeldDeployment| uid_of(found) == Some(recorded.uid.as_str());
        let Some(deployment) = owner.await?.filter(is_owner) else {
            return Ok(None);
        };
        let moment = self.seal_moment(self.lookups.now());
        let is_vouched = self.lookups.with_stamp_key(|key| {
            let name = &recorded.deployment;
            stamping::confirmed_facts(key, Kind::BundleDeployment, name, &deployment, &moment)
                .is_some()
        });
        let spec = CheckedDeploymentSpec::parse(&deployment["spec"]).ok();
        let spec = spec.filter(|_| is_vouched);
        Ok(Some(DefinitionOwner {
            deployment: recorded.deployment,
            account: recorded.account,
            exceptions: spec.map_or_else(Vec::new, |spec| spec.crd_exceptions),
        }))
    }

    async fn deployment_named(
        &self,
        request: &Request,
        name: &str,
    ) -> Result<Option<L::HeldDeployment>, String> {
        // An object with an invalid name cannot exist.
        let Ok(name) = KubeName::parse(NameKind::Subdomain, name) else {
            return Ok(None);
        };
        let found = self.lookups.deployment(&request.requester, &name).await;
        found.map_err(|finding| finding.message)
    }
}

fn uid_of(object: &Value) -> Option<&str> {
    object["metadata"]["uid"].as_str()
}
