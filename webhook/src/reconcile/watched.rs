//! The fields of the project's own objects that the controllers keep in memory: identity, and names
//! that determine which objects must be reconciled. The whole object is read only when it is
//! reconciled. Therefore large objects of users do not increase the memory that the watches need.

use std::borrow::Cow;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Resource;
use kube::api::{DynamicObject, ObjectMeta, TypeMeta};
use kube::core::discovery::ApiResource;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Maximum length of the name of a Kubernetes object, in bytes.
const NAME_LIMIT: usize = 253;
/// Field names in `spec` whose values are stored.
const KEPT: [&str; 3] = ["bundleDeployment", "name", "provisionerClassName"];

/// The fields of an object that the controllers keep in memory.
#[derive(Debug, Clone, Deserialize)]
#[serde(from = "Fields")]
pub(in crate::reconcile) struct WatchedObject {
    metadata: ObjectMeta,
    /// The value of `spec.provisionerClassName`.
    pub(in crate::reconcile) class: Option<String>,
    /// The value of `spec.bundleDeployment.name`.
    pub(in crate::reconcile) deployment: Option<String>,
}

impl WatchedObject {
    /// Returns an object that contains only the metadata of this object.
    pub(in crate::reconcile) fn identity(&self, resource: &ApiResource) -> DynamicObject {
        DynamicObject {
            types: Some(TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            }),
            metadata: self.metadata.clone(),
            data: serde_json::Value::Null,
        }
    }
}

impl Resource for WatchedObject {
    type DynamicType = ApiResource;
    type Scope = kube::core::DynamicResourceScope;

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        resource.kind.as_str().into()
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        resource.group.as_str().into()
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        resource.version.as_str().into()
    }

    fn api_version(resource: &ApiResource) -> Cow<'_, str> {
        resource.api_version.as_str().into()
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        resource.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

/// The stored fields of `metadata`. API servers limit the length of names, and set all other fields
/// of this struct themselves.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
}

impl From<Fields> for WatchedObject {
    fn from(fields: Fields) -> Self {
        let Metadata {
            name,
            uid,
            resource_version,
            generation,
            creation_timestamp,
            deletion_timestamp,
        } = fields.metadata;
        Self {
            metadata: ObjectMeta {
                name,
                uid,
                resource_version,
                generation,
                creation_timestamp,
                deletion_timestamp,
                ..ObjectMeta::default()
            },
            class: fields.spec.get("provisionerClassName").text(),
            deployment: fields.spec.get("bundleDeployment").get("name").text(),
        }
    }
}

/// A value in `spec`. Only short texts in the fields [`KEPT`] are stored. Parsing accepts every
/// value, because an object with unexpected values must not make the parsing of a list fail.
#[derive(Debug, Default)]
enum Value {
    Text(String),
    /// The stored entries, in the order of [`KEPT`].
    Map(Box<[Option<Value>; KEPT.len()]>),
    #[default]
    Other,
}

impl Value {
    fn get(&self, key: &str) -> &Self {
        match self {
            Self::Map(entries) => KEPT
                .iter()
                .zip(entries.iter())
                .find_map(|(kept, value)| (*kept == key).then_some(value.as_ref()?))
                .unwrap_or(&Self::Other),
            Self::Text(_) | Self::Other => &Self::Other,
        }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text.clone()),
            Self::Map(_) | Self::Other => None,
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(if text.len() <= NAME_LIMIT {
            Value::Text(text.to_owned())
        } else {
            Value::Other
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut kept = Box::new([const { None }; KEPT.len()]);
        while let Some(key) = entries.next_key::<String>()? {
            match KEPT.iter().position(|kept| *kept == key) {
                Some(index) => kept[index] = Some(entries.next_value()?),
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Map(kept))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn watched(object: &serde_json::Value) -> WatchedObject {
        serde_json::from_str(&object.to_string()).unwrap()
    }

    #[test]
    fn identity_and_class_are_kept_and_nothing_else() {
        let object = watched(&json!({
            "metadata": {
                "name": "web", "uid": "1", "resourceVersion": "7", "generation": 2,
                "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
                "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["a/b"],
                "managedFields": [{"manager": "a"}],
                "ownerReferences": [{
                    "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
                    "name": "owner", "uid": "2", "controller": true,
                }],
            },
            "spec": {"provisionerClassName": "plain", "config": {"provisionerClassName": "x", "a": [1, null]}},
            "status": {"content": {"seal": "x"}},
        }));
        assert_eq!(object.class.as_deref(), Some("plain"));
        assert_eq!(object.deployment, None);
        let metadata = object.meta();
        assert_eq!(metadata.name.as_deref(), Some("web"));
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(metadata.generation, Some(2));
        assert!(metadata.creation_timestamp.is_some() && metadata.deletion_timestamp.is_some());
        for is_kept in [
            metadata.labels.is_some(),
            metadata.annotations.is_some(),
            metadata.finalizers.is_some(),
            metadata.managed_fields.is_some(),
            metadata.owner_references.is_some(),
        ] {
            assert!(!is_kept);
        }
    }

    #[test]
    fn approval_keeps_the_name_of_its_deployment() {
        let object =
            watched(&json!({"spec": {"digest": "a", "bundleDeployment": {"name": "web"}}}));
        assert_eq!(object.deployment.as_deref(), Some("web"));
    }

    #[test]
    fn unexpected_values_are_ignored() {
        let long = "x".repeat(NAME_LIMIT + 1);
        for spec in [
            json!(null),
            json!(1),
            json!(-1.5),
            json!(true),
            json!("text"),
            json!([{"provisionerClassName": "a"}]),
            json!({"provisionerClassName": 1, "bundleDeployment": "a"}),
            json!({"provisionerClassName": long, "bundleDeployment": {"name": [1]}}),
        ] {
            let object = watched(&json!({"spec": spec}));
            assert_eq!((object.class, object.deployment), (None, None), "{spec}");
        }
    }

    #[test]
    fn memory_does_not_depend_on_the_values_of_the_object() {
        let tiny: Vec<_> = (0..100_000).map(|_| json!({"": 0})).collect();
        let object = watched(&json!({"spec": {"config": tiny, "name": {"name": {"name": "a"}}}}));
        assert!(format!("{object:?}").len() < 2000);
    }

    #[test]
    fn memory_does_not_depend_on_the_texts_of_the_metadata() {
        let long = "x".repeat(1_000_000);
        let owner = json!({
            "apiVersion": long, "kind": long, "name": long, "uid": long, "controller": true,
        });
        let object = watched(&json!({"metadata": {
            "name": "web", "generateName": long, "selfLink": long,
            "labels": {"a": long}, "annotations": {"a": long}, "finalizers": [long],
            "ownerReferences": [owner],
            "managedFields": [{"manager": long, "apiVersion": long, "subresource": long}],
        }}));
        assert_eq!(object.meta().name.as_deref(), Some("web"));
        assert!(format!("{object:?}").len() < 2000);
    }
}
