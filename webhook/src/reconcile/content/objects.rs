//! The objects of content, prepared for applying: each has its kind, namespace and owner labels.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use bundle_core::diagnostic::codes;
use bundle_core::object::CustomKind;
use bundle_core::object::{Manifest, ObjectId};
use bundle_core::plan::conditions::some_of;
use bundle_core::plan::phases::Phase;
use bundle_core::plan::placement::ObjectOwner;
use serde_json::Value;

use crate::budget::Share;
use crate::reconcile::api::discovery::{Apis, Kind};
use crate::reconcile::error::{self, MAX_LISTED, ReconcileError, RetryPolicy};

/// One object that is ready to be applied.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct PreparedObject {
    pub(in crate::reconcile) id: ObjectId,
    /// The object id as text, for example `ConfigMap/team-a/web`. It is the object key in
    /// inventories and states.
    pub(in crate::reconcile) key: String,
    pub(in crate::reconcile) kind: Kind,
    pub(in crate::reconcile) phase: Phase,
    pub(in crate::reconcile) value: Value,
    /// True if the content defines the kind and the API server does not serve it yet.
    pub(in crate::reconcile) is_defined_by_content: bool,
}

impl PreparedObject {
    /// Returns true if applying the object changes the kinds that the API server serves.
    pub(in crate::reconcile) fn defines_kinds(&self) -> bool {
        let is_service = self.id.group == "apiregistration.k8s.io" && self.id.kind == "APIService";
        is_service || self.id.is_definition()
    }
}

#[cfg(test)]
impl PreparedObject {
    /// Returns ConfigMap `web` in namespace `team-a`, without the owner labels.
    pub(in crate::reconcile) fn config_map() -> Self {
        let id = ObjectId {
            group: String::new(),
            version: "v1".to_owned(),
            kind: "ConfigMap".to_owned(),
            namespace: Some("team-a".to_owned()),
            name: "web".to_owned(),
        };
        Self {
            key: id.to_string(),
            kind: Kind {
                resource: kube::core::discovery::ApiResource::erase::<
                    k8s_openapi::api::core::v1::ConfigMap,
                >(&()),
                namespaced: true,
            },
            phase: Phase::Configuration,
            value: serde_json::json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"},
                "data": {"a": "content"},
            }),
            is_defined_by_content: false,
            id,
        }
    }
}

/// Objects of content, and the memory reservation for them. Dropping this value releases the
/// reservation.
#[derive(Debug)]
pub(in crate::reconcile) struct HeldObjects {
    items: Vec<PreparedObject>,
    _share: Share,
}

impl HeldObjects {
    pub(in crate::reconcile) fn new(items: Vec<PreparedObject>, share: Share) -> Self {
        Self {
            items,
            _share: share,
        }
    }
}

impl Deref for HeldObjects {
    type Target = Vec<PreparedObject>;

    fn deref(&self) -> &Self::Target {
        &self.items
    }
}

impl DerefMut for HeldObjects {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.items
    }
}

/// Prepares the objects of content. `defined` are the kinds that the content itself defines. The
/// error lists all kinds that the API server does not serve.
pub(in crate::reconcile) async fn prepare(
    apis: &Apis,
    (defined, objects): (&[CustomKind], Vec<Manifest>),
    owner: &ObjectOwner<'_>,
    reason: &'static str,
) -> Result<Vec<PreparedObject>, ReconcileError> {
    let mut kinds = BTreeMap::<(String, String, String), Option<(Kind, bool)>>::new();
    let mut items = Vec::with_capacity(objects.len());
    let mut missing = Vec::new();
    let mut unplaced = Vec::new();
    for object in objects {
        let (group, version, kind) = object.gvk();
        let gvk = (group.to_owned(), version.to_owned(), kind.to_owned());
        if !kinds.contains_key(&gvk) {
            // Installing or removing the content changes which of its own kinds are served.
            // Therefore discovery does not use the cache for these kinds.
            let is_own = defined
                .iter()
                .any(|own| own.group == group && own.kind == kind);
            let served = if is_own {
                apis.find_uncached(group, version, kind).await
            } else {
                apis.find(group, version, kind).await
            };
            let served = served.map_err(|error| {
                ReconcileError::api("discover the served kinds", reason, &error)
            })?;
            // If the API server serves the kind, the definition in the content is ignored.
            let found = served
                .map(|kind| (kind, false))
                .or_else(|| Kind::defined(defined, &object.id).map(|kind| (kind, true)));
            kinds.insert(gvk.clone(), found);
        }
        let found = kinds.get(&gvk).cloned().flatten();
        match found {
            Some((kind, custom)) => match item(object, kind, custom, owner) {
                Ok(item) => items.push(item),
                Err(id) => unplaced.push(id),
            },
            None => missing.push(object.id),
        }
    }
    if !missing.is_empty() {
        return Err(missing_kinds(&missing, reason));
    }
    if !unplaced.is_empty() {
        return Err(without_namespace(&unplaced, reason));
    }
    let twice = duplicates(&items);
    if !twice.is_empty() {
        return Err(ReconcileError::new(
            codes::format::DUPLICATE_OBJECT,
            reason,
            format!(
                "duplicate objects in the content after namespaces were set: {}; remove or rename one of each",
                some_of(&twice, MAX_LISTED)
            ),
            RetryPolicy::OnChange,
        ));
    }
    Ok(items)
}

/// Returns the error for objects of kinds that the API server does not serve. The message equals
/// the message of RukPak.
pub(in crate::reconcile) fn missing_kinds(
    objects: &[ObjectId],
    reason: &'static str,
) -> ReconcileError {
    let kinds = objects.iter().map(|id| {
        let version = id.api_version();
        format!("no matches for kind {:?} in version {version:?}", id.kind)
    });
    let kinds = error::joined(kinds.collect(), MAX_LISTED);
    ReconcileError::new(
        codes::install::MISSING_KIND,
        reason,
        format!("required resource not found: {kinds}"),
        RetryPolicy::Soon,
    )
}

/// Returns the error for namespaced objects without a namespace if the spec sets no target
/// namespace.
pub(in crate::reconcile) fn without_namespace(
    objects: &[ObjectId],
    reason: &'static str,
) -> ReconcileError {
    ReconcileError::new(
        codes::install::NO_NAMESPACE,
        reason,
        format!(
            "the content has {} without a namespace: {}; set spec.targetNamespace, and also spec.createNamespace: true if the namespace does not exist (kubectl bundle deploy -n NAMESPACE --create-namespace)",
            count(objects.len()),
            some_of(objects, MAX_LISTED)
        ),
        RetryPolicy::OnChange,
    )
}

/// Returns the object keys that several `items` have. Parsing the content cannot find these
/// duplicates, because the namespace of an object depends on the scope of its kind and on the spec.
fn duplicates(items: &[PreparedObject]) -> Vec<&str> {
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&str> = items
        .iter()
        .map(|item| item.key.as_str())
        .filter(|key| !seen.insert(*key))
        .collect();
    twice.into_iter().collect()
}

fn count(objects: usize) -> String {
    match objects {
        1 => "1 object".to_owned(),
        more => format!("{more} objects"),
    }
}

/// Adds namespace and owner labels to the object. If the kind is namespaced and no namespace is
/// set, returns the id of the object as the error.
fn item(
    object: Manifest,
    kind: Kind,
    custom: bool,
    owner: &ObjectOwner<'_>,
) -> Result<PreparedObject, ObjectId> {
    let Manifest { id, value, .. } = owner.place(object, kind.namespaced)?;
    Ok(PreparedObject {
        phase: Phase::of(&id.group, &id.kind),
        key: id.to_string(),
        id,
        kind,
        value,
        is_defined_by_content: custom,
    })
}

#[cfg(test)]
mod tests {
    use kube::core::discovery::ApiResource;
    use serde_json::json;

    use super::*;

    fn kind(namespaced: bool) -> Kind {
        Kind {
            resource: ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
            namespaced,
        }
    }

    fn prepared(metadata: &Value, namespaced: bool) -> PreparedObject {
        let namespace = metadata["namespace"].as_str().map(str::to_owned);
        let object = Manifest {
            id: ObjectId {
                group: String::new(),
                version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                namespace,
                name: "x".to_owned(),
            },
            value: json!({ "metadata": metadata, "status": {} }),
            file: String::new(),
            line: 1,
        };
        let owner = ObjectOwner {
            name: "web",
            applyset: "applyset-x-v1",
            namespace: Some("web"),
        };
        item(object, kind(namespaced), false, &owner).unwrap()
    }

    #[test]
    fn adds_owner_labels_and_keeps_labels_of_content() {
        let item = prepared(
            &json!({ "name": "x", "labels": { "app": "a" }, "uid": "1" }),
            true,
        );
        assert_eq!(
            item.value,
            json!({ "metadata": { "name": "x", "namespace": "web", "labels": {
                "app": "a",
                "core.rukpak.io/owner-kind": "BundleDeployment",
                "core.rukpak.io/owner-name": "web",
                "applyset.kubernetes.io/part-of": "applyset-x-v1",
            } } })
        );
        assert_eq!(item.key, "ConfigMap/web/x");
    }

    #[test]
    fn finds_duplicates_after_namespaces_are_set() {
        let settled = |namespace: Value, namespaced| {
            prepared(&json!({ "name": "x", "namespace": namespace }), namespaced)
        };
        for (first, second, namespaced, expected) in [
            (Value::Null, json!("web"), true, vec!["ConfigMap/web/x"]),
            (Value::Null, json!("a"), true, vec![]),
            (json!("a"), json!("b"), false, vec!["ConfigMap/x"]),
        ] {
            let items = [settled(first, namespaced), settled(second, namespaced)];
            assert_eq!(duplicates(&items), expected);
        }
    }

    #[test]
    fn keeps_namespaces_of_namespaced_kinds_only() {
        assert_eq!(
            prepared(&json!({ "name": "x", "namespace": "a" }), true).key,
            "ConfigMap/a/x"
        );
        let cluster = prepared(&json!({ "name": "x", "namespace": "a" }), false);
        assert_eq!(cluster.key, "ConfigMap/x");
        assert_eq!(cluster.value["metadata"].get("namespace"), None);
    }
}
