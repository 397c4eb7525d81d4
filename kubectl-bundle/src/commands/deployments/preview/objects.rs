//! Objects of the content as bundle-webhook applies them: with their kind, namespace and labels.

use std::collections::BTreeMap;

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_cluster::discovery::{Apis, Kind};
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::object::{CustomKind, Manifest, ObjectId};
use bundle_core::package::Format;
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::created_namespace::{NamespaceState, created_namespace};
use bundle_core::plan::placement::ObjectOwner;
use bundle_core::review::deployment::CheckedDeploymentSpec;
use bundle_core::serving_certificate;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::Api;
use serde_json::Value;

use crate::cluster::Cluster;
use crate::failure::{Failure, Outcome};

/// Maximum number of objects in a message.
const MAX_NAMED: usize = 5;

/// Object of the content.
pub(super) struct WantedObject {
    /// Identity, with the namespace of the object in the cluster.
    pub(super) id: ObjectId,
    /// Kind, namespace and name.
    pub(super) key: String,
    /// Kind from the API server. If the API server does not serve the kind, this is the kind from a
    /// CustomResourceDefinition in the content.
    pub(super) kind: Kind,
    /// `true` if the API server serves the kind. `false` if only a CustomResourceDefinition in the
    /// content defines the kind.
    pub(super) is_served: bool,
    /// Complete object.
    pub(super) value: Value,
    /// `true` if bundle-webhook writes a serving certificate or CA certificates into the object.
    pub(super) has_certificate: bool,
}

/// BundleDeployment that owns the objects, and its settings.
pub(super) struct ApplySettings<'a> {
    /// Name of the BundleDeployment.
    pub(super) name: &'a str,
    /// ID of the ApplySet of the BundleDeployment.
    pub(super) applyset: &'a str,
    /// Spec of the BundleDeployment.
    pub(super) spec: &'a CheckedDeploymentSpec,
    /// Format of the content.
    pub(super) format: Format,
}

impl ApplySettings<'_> {
    /// Returns the objects that bundle-webhook applies. If the target namespace must be created,
    /// the namespace is the first object. The error lists all kinds that the server does not serve,
    /// or all objects that need a namespace.
    pub(super) async fn prepare_objects(
        &self,
        cluster: &Cluster,
        mut objects: Vec<Manifest>,
    ) -> Outcome<Vec<WantedObject>> {
        let target = self.spec.target_namespace.as_deref();
        if let Some(target) = target.filter(|_| self.spec.create_namespace) {
            let state = self.namespace_state(cluster, target).await?;
            if let Some(namespace) = created_namespace(Some(target), true, &objects, state) {
                objects.insert(0, namespace);
            }
        }
        let owner = ObjectOwner {
            name: self.name,
            applyset: self.applyset,
            namespace: target,
        };
        let kinds = served_kinds(cluster, &objects).await?;
        let (mut placed, mut missing, mut unplaced) = (Vec::new(), Vec::new(), Vec::new());
        for object in objects {
            let found = kinds.get(&gvk(&object.id)).cloned().flatten();
            let Some((kind, is_served)) = found else {
                missing.push(object.id);
                continue;
            };
            let has_certificate = self.format == Format::RegistryV1
                && serving_certificate::service(&object).is_some();
            match owner.place(object, kind.namespaced) {
                Ok(object) => placed.push(WantedObject {
                    key: object.id.to_string(),
                    id: object.id,
                    kind,
                    is_served,
                    value: object.value,
                    has_certificate,
                }),
                Err(id) => unplaced.push(id),
            }
        }
        check(&missing, &unplaced)?;
        Ok(placed)
    }

    /// Returns the state of the target namespace. If the user has no permission to read the
    /// namespace, it is treated as a namespace of another owner, which the installation does not
    /// change.
    async fn namespace_state(&self, cluster: &Cluster, name: &str) -> Outcome<NamespaceState> {
        let api: Api<Namespace> = Api::all(cluster.client.clone());
        let found = match cluster.send(ByName(&api).get_opt(name)).await {
            Err(Failure::Server(status)) if status.code == 403 => {
                return Ok(NamespaceState::Foreign);
            }
            found => found?,
        };
        let Some(found) = found else {
            return Ok(NamespaceState::Absent);
        };
        let labels = found.metadata.labels.unwrap_or_default();
        let part_of = labels.get(names::LABEL_APPLYSET_PART_OF);
        Ok(if part_of.is_some_and(|part_of| part_of == self.applyset) {
            NamespaceState::Ours
        } else {
            NamespaceState::Foreign
        })
    }
}

type GroupVersionKind = (String, String, String);

fn gvk(id: &ObjectId) -> GroupVersionKind {
    let (group, version, kind) = id.gvk();
    (group.to_owned(), version.to_owned(), kind.to_owned())
}

/// Returns the kind of each object, with `true` if the API server serves the kind. Returns `None`
/// for an unknown kind. A kind from API discovery overrides a CustomResourceDefinition in the
/// content.
async fn served_kinds(
    cluster: &Cluster,
    objects: &[Manifest],
) -> Outcome<BTreeMap<GroupVersionKind, Option<(Kind, bool)>>> {
    let defined = CustomKind::all(objects);
    let apis = Apis::new(cluster.client.clone());
    let mut kinds = BTreeMap::new();
    for object in objects {
        let gvk = gvk(&object.id);
        if kinds.contains_key(&gvk) {
            continue;
        }
        let served = cluster.send(apis.find(&gvk.0, &gvk.1, &gvk.2)).await?;
        let defined = || Kind::defined(&defined, &object.id).map(|kind| (kind, false));
        let found = served.map(|kind| (kind, true)).or_else(defined);
        kinds.insert(gvk, found);
    }
    Ok(kinds)
}

fn check(missing: &[ObjectId], unplaced: &[ObjectId]) -> Result<(), Findings> {
    let mut findings = Findings::default();
    if !missing.is_empty() {
        let kinds: std::collections::BTreeSet<String> = missing
            .iter()
            .map(|id| format!("{} in {}", id.kind, id.api_version()))
            .collect();
        let kinds: Vec<_> = kinds.into_iter().collect();
        findings.push(
            Finding::error(
                codes::install::MISSING_KIND,
                format!(
                    "the API server does not serve kinds of the content: {}",
                    some_of(&kinds, MAX_NAMED)
                ),
            )
            .hint("first install the content that defines these kinds"),
        );
    }
    if !unplaced.is_empty() {
        findings.push(
            Finding::error(
                codes::install::NO_NAMESPACE,
                format!(
                    "the content has objects without a namespace: {}",
                    some_of(unplaced, MAX_NAMED)
                ),
            )
            .hint("set spec.targetNamespace: kubectl bundle deploy NAME REF -n NAMESPACE"),
        );
    }
    if findings.has_errors() {
        return Err(findings);
    }
    Ok(())
}
