//! Kinds that CustomResourceDefinitions define.

use serde_json::Value;

use super::Manifest;

/// Kind that a CRD of the content defines. The API server possibly does not serve this
/// kind yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct CustomKind {
    /// API group of the kind.
    pub group: String,
    /// Name of the kind, as in the field `kind` of its objects.
    pub kind: String,
    /// Plural name, as in URL paths.
    pub plural: String,
    /// True if objects of the kind are namespaced.
    pub namespaced: bool,
    /// Served versions of the API.
    pub versions: Vec<String>,
}

impl CustomKind {
    /// Parses a CRD of apiextensions.k8s.io/v1. Returns `None` if a required field is missing.
    pub fn of(value: &Value) -> Option<Self> {
        let spec = value.get("spec")?;
        let text = |pointer: &str| spec.pointer(pointer)?.as_str().map(str::to_owned);
        Some(Self {
            group: text("/group")?,
            kind: text("/names/kind")?,
            plural: text("/names/plural")?,
            namespaced: text("/scope")? == "Namespaced",
            versions: spec
                .get("versions")?
                .as_array()?
                .iter()
                .filter(|version| version["served"] == Value::Bool(true))
                .filter_map(|version| version["name"].as_str().map(str::to_owned))
                .collect(),
        })
    }

    /// Returns the kinds that `objects` define.
    pub fn all(objects: &[Manifest]) -> Vec<Self> {
        objects
            .iter()
            .filter(|object| object.id.is_definition())
            .filter_map(|object| Self::of(&object.value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reads_plural_scope_and_served_versions_of_a_definition() {
        let value = json!({ "spec": {
            "group": "example.com", "scope": "Namespaced", "names": { "kind": "Widget", "plural": "widgets" },
            "versions": [{ "name": "v1", "served": true }, { "name": "v0", "served": false }],
        } });
        let kind = CustomKind::of(&value).unwrap();
        assert_eq!(
            (
                kind.plural.as_str(),
                kind.namespaced,
                kind.versions.as_slice()
            ),
            ("widgets", true, ["v1".to_owned()].as_slice())
        );
        assert_eq!(
            CustomKind::of(&json!({ "spec": { "group": "example.com" } })),
            None
        );
    }
}
