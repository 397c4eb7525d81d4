//! Models of other JSON parsers, for tests. A model reads a file as a JSON value, or like Go's
//! `encoding/json`, or by position like serde. Each model returns `true` if the parser reads the
//! file as the manifest or the payload of an image. The models follow the documentation of the
//! parsers, and accept more input than the parsers.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// Model of a parser. Returns `true` if the parser accepts the bytes as a payload or a manifest.
pub(super) type Reader = fn(&[u8]) -> bool;

/// The models of all parsers, by name.
pub(super) const READERS: [(&str, Reader); 6] = [
    ("a value as payload", |bytes| {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        value.is_some_and(|value| value["critical"]["image"]["docker-manifest-digest"].is_string())
    }),
    ("a value as manifest", |bytes| {
        let value: Option<Value> = serde_json::from_slice(bytes).ok();
        value.is_some_and(|value| value["layers"].is_array() || value["manifests"].is_array())
    }),
    ("Go as payload", |bytes| {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let tree = Tree::deserialize(&mut reader).ok();
        let image = tree
            .as_ref()
            .and_then(|tree| tree.get("critical")?.get("image"));
        image
            .and_then(|image| image.get("docker-manifest-digest"))
            .is_some()
    }),
    ("Go as manifest", |bytes| {
        let mut reader = serde_json::Deserializer::from_slice(bytes);
        let tree = Tree::deserialize(&mut reader).ok();
        let list = |name| matches!(tree.as_ref()?.get(name)?, Tree::List).then_some(());
        list("layers").or(list("manifests")).is_some()
    }),
    ("serde as payload", |bytes| {
        serde_json::from_slice::<Payload>(bytes).is_ok()
            || serde_json::from_slice::<ShortPayload>(bytes).is_ok()
    }),
    ("serde as manifest", |bytes| {
        serde_json::from_slice::<Manifest>(bytes).is_ok()
            || serde_json::from_slice::<Index>(bytes).is_ok()
    }),
];

#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "critical")]
    _critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "identity")]
    _identity: IgnoredAny,
    #[serde(rename = "image")]
    _image: Image,
    #[serde(rename = "type")]
    _kind: String,
}

#[derive(Deserialize)]
struct ShortPayload {
    #[serde(rename = "critical")]
    _critical: ShortCritical,
    #[serde(default, rename = "optional")]
    _optional: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct ShortCritical {
    #[serde(rename = "image")]
    _image: Image,
    #[serde(rename = "type")]
    _kind: String,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    _digest: String,
}

#[derive(Deserialize)]
struct Manifest {
    #[serde(rename = "schemaVersion")]
    _version: u32,
    #[serde(default, rename = "mediaType")]
    _media_type: Option<String>,
    #[serde(rename = "config")]
    _config: Descriptor,
    #[serde(rename = "layers")]
    _layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Index {
    #[serde(rename = "schemaVersion")]
    _version: u32,
    #[serde(default, rename = "mediaType")]
    _media_type: Option<String>,
    #[serde(rename = "manifests")]
    _manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    #[serde(rename = "digest")]
    _digest: String,
}

/// JSON with the rules of Go: keys are case-insensitive, and the last duplicate has precedence.
enum Tree {
    Object(Vec<(String, Tree)>),
    List,
    Other,
}

impl Tree {
    fn get(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(fields) => {
                let mut fields = fields.iter().rev();
                fields.find(|(key, _)| key == name).map(|(_, value)| value)
            }
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Tree;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_str<E: Error>(self, _: &str) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_unit<E: Error>(self) -> Result<Tree, E> {
                Ok(Tree::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
                while list.next_element::<Tree>()?.is_some() {}
                Ok(Tree::List)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
                let mut fields = Vec::new();
                while let Some((key, value)) = map.next_entry::<String, Tree>()? {
                    fields.push((bundle_core::json::folded(&key), value));
                }
                Ok(Tree::Object(fields))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
