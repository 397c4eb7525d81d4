//! Reviews of ConfigMaps in the system namespace. The API server requests these reviews only if the
//! webhook `vconfigmaps.core.rukpak.io` is registered. The name of this webhook is the same as in
//! RukPak. The rule is in `bundle_core::review::config_maps`.

use bundle_core::diagnostic::Findings;
use bundle_core::review::config_maps::{ConfigMapOperation, judge_config_map};
use bundle_core::review::{StampChange, Verdict};

use super::review::Request;
use super::{Admission, Lookups, rejections};

/// A ConfigMap in a review, and the reviewed operation: creation or deletion.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReviewedConfigMap<'a> {
    name: &'a str,
    operation: ConfigMapOperation,
}

impl<'a> ReviewedConfigMap<'a> {
    /// Returns the ConfigMap that the request creates or deletes in `namespace`. Returns `None` for
    /// every other request.
    pub(super) fn of(request: &'a Request, namespace: &str) -> Option<Self> {
        let is_config_map = request.kind.group.is_empty() && request.kind.kind == "ConfigMap";
        if !is_config_map || !request.sub_resource.is_empty() || request.namespace != namespace {
            return None;
        }
        let (operation, object) = match request.operation.as_str() {
            "CREATE" => {
                let is_immutable = request.object["immutable"] == true;
                let operation = ConfigMapOperation::Create { is_immutable };
                (operation, &request.object)
            }
            "DELETE" => (ConfigMapOperation::Delete, &request.old_object),
            _ => return None,
        };
        // The request has no name if the API server generates the name, or if a collection is
        // deleted.
        let name = match request.name.as_str() {
            "" => object["metadata"]["name"].as_str()?,
            name => name,
        };
        Some(Self { name, operation })
    }
}

impl<L: Lookups> Admission<L> {
    /// Returns the verdict on the creation or deletion of a ConfigMap by this request.
    pub(super) async fn config_map(
        &self,
        reviewed: &ReviewedConfigMap<'_>,
        request: &Request,
    ) -> Verdict {
        let ReviewedConfigMap { name, operation } = *reviewed;
        let deadline = request.deadline;
        let admitted = || Verdict::Admit {
            warnings: Findings::default(),
            stamp: StampChange::None,
        };
        if operation == (ConfigMapOperation::Create { is_immutable: true }) {
            return admitted();
        }
        let requester = &request.requester;
        let bundles = self.lookups.bundles_of_config_map(requester, name);
        let late = || Err(rejections::deadline_exceeded(deadline.limit()));
        match deadline.run(bundles).await.unwrap_or_else(late) {
            Err(unknown) => Verdict::Unknown(unknown.into()),
            Ok(bundles) => judge_config_map(name, operation, &bundles)
                .map_or_else(admitted, |finding| Verdict::Refuse(finding.into())),
        }
    }
}
