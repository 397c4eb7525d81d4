//! Objects in responses to dry runs, reduced to the compared fields. The parser skips `status` and
//! the fields of `metadata` that the API server sets. Skipped fields use no memory.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::footprint::Footprint;

/// Name of the field with the metadata of an object.
pub(super) const METADATA: &str = "metadata";
/// Fields of `metadata` that the API server sets itself.
const SERVER_METADATA: [&str; 5] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
];

/// Fields of an object that are compared.
#[derive(Debug, Clone, PartialEq)]
pub struct DryRunObject {
    pub(super) metadata: Map<String, Value>,
    /// All fields except `metadata`.
    pub(super) fields: Map<String, Value>,
    version: Option<String>,
}

impl DryRunObject {
    /// Parses the JSON text of an object.
    pub fn parse(text: &[u8]) -> Result<Self, serde_json::Error> {
        let Object { metadata, fields } = serde_json::from_slice(text)?;
        Ok(Self {
            metadata: metadata.fields,
            fields,
            version: metadata.version,
        })
    }

    /// Returns `true` if all responses are based on the same resourceVersion of an existing object.
    /// Returns `false` if a response has no resourceVersion.
    pub fn have_one_version(answers: &[Self]) -> bool {
        let [first, rest @ ..] = answers else {
            return true;
        };
        first.version().is_some() && rest.iter().all(|other| other.version() == first.version())
    }

    /// Returns the resourceVersion; `None` if the response has no resourceVersion.
    pub(super) fn version(&self) -> Option<&str> {
        self.version
            .as_deref()
            .filter(|version| !version.is_empty())
    }

    /// Returns the memory that [`Self::parse`] would use for this text, in bytes.
    pub fn footprint(text: &[u8]) -> Result<Footprint, serde_json::Error> {
        let object: Object<Weight> = serde_json::from_slice(text)?;
        Ok(object.metadata.fields.all().plus(object.fields.all()))
    }
}

/// Collects the fields of a map.
trait Gather: Default {
    type Field: DeserializeOwned;

    fn add(&mut self, name: String, field: Self::Field);
}

impl Gather for Map<String, Value> {
    type Field = Value;

    fn add(&mut self, name: String, field: Value) {
        self.insert(name, field);
    }
}

/// Memory that a parsed map would need. The values are not stored.
#[derive(Default)]
struct Weight {
    entries: u64,
    held: Footprint,
}

impl Weight {
    fn all(&self) -> Footprint {
        self.held.plus(Footprint::of_map(self.entries))
    }
}

impl Gather for Weight {
    type Field = Footprint;

    fn add(&mut self, name: String, field: Footprint) {
        self.entries += 1;
        self.held = self.held.plus(Footprint::of_text(name.len())).plus(field);
    }
}

struct Object<G> {
    metadata: Metadata<G>,
    fields: G,
}

impl<'de, G: Gather> Deserialize<'de> for Object<G> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<G>(PhantomData<G>);

impl<'de, G: Gather> Visitor<'de> for ObjectVisitor<G> {
    type Value = Object<G>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Object<G>, A::Error> {
        let (mut metadata, mut fields) = (Metadata::default(), G::default());
        while let Some(name) = entries.next_key::<String>()? {
            match name.as_str() {
                "status" => {
                    entries.next_value::<IgnoredAny>()?;
                }
                METADATA => metadata = entries.next_value()?,
                _ => fields.add(name, entries.next_value()?),
            }
        }
        Ok(Object { metadata, fields })
    }
}

#[derive(Default)]
struct Metadata<G> {
    fields: G,
    version: Option<String>,
}

impl<'de, G: Gather> Deserialize<'de> for Metadata<G> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(MetadataVisitor(PhantomData))
    }
}

struct MetadataVisitor<G>(PhantomData<G>);

impl<'de, G: Gather> Visitor<'de> for MetadataVisitor<G> {
    type Value = Metadata<G>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("metadata")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Metadata<G>, A::Error> {
        let (mut fields, mut version) = (G::default(), None);
        while let Some(name) = entries.next_key::<String>()? {
            if name == "resourceVersion" {
                version = entries.next_value()?;
            } else if SERVER_METADATA.contains(&name.as_str()) {
                entries.next_value::<IgnoredAny>()?;
            } else {
                fields.add(name, entries.next_value()?);
            }
        }
        Ok(Metadata { fields, version })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_are_not_compared_take_no_memory() {
        let many = json!(vec![json!({"a": 0}); 10_000]);
        let skipped = json!({"status": many, "metadata": {"managedFields": many, "uid": "u", "labels": {"a": "b"}}});
        let text = skipped.to_string();
        assert!(DryRunObject::footprint(text.as_bytes()).unwrap().0 < 10_000);
        let read = DryRunObject::parse(text.as_bytes()).unwrap();
        assert_eq!(Value::Object(read.metadata), json!({"labels": {"a": "b"}}));
        assert!(read.fields.is_empty());
        let kept = json!({"spec": many}).to_string();
        assert!(DryRunObject::footprint(kept.as_bytes()).unwrap().0 > 1_000_000);
    }

    #[test]
    fn answers_have_one_version_if_all_tell_the_same() {
        let answer = |metadata: Value| {
            DryRunObject::parse(json!({"metadata": metadata}).to_string().as_bytes()).unwrap()
        };
        let version = |version: &str| answer(json!({"resourceVersion": version}));
        let none = || answer(json!({}));
        for (answers, expected) in [
            (vec![version("1"), version("1"), version("1")], true),
            (vec![version("1"), version("1"), version("2")], false),
            (vec![version("2"), version("1")], false),
            (vec![version("1"), none()], false),
            (vec![none(), none()], false),
            (vec![version(""), version("")], false),
        ] {
            assert_eq!(
                DryRunObject::have_one_version(&answers),
                expected,
                "{answers:?}"
            );
        }
    }

    #[test]
    fn answer_that_is_no_object_is_an_error() {
        for text in ["", "[]", "1", "null", r#"{"metadata":[]}"#, "{\"a\":"] {
            assert!(DryRunObject::parse(text.as_bytes()).is_err(), "{text}");
            assert!(DryRunObject::footprint(text.as_bytes()).is_err(), "{text}");
        }
    }
}
