//! The OpenAPI schemas of Kubernetes' own kinds, of one release for each supported minor version,
//! as a compressed table. `bundle_core::check` compares objects with these schemas. Only
//! `kubectl-bundle` contains the table. The pod needs no table, because the API server validates
//! the objects that the pod applies.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

use bundle_core::check::KubernetesSchemas;
use bundle_core::version::Minor;
use flate2::read::GzDecoder;
use serde::Deserialize;
use serde_json::Value;

/// Generated table (`cargo xtask schemas`), compressed with gzip.
const TABLE: &[u8] = include_bytes!("table.json.gz");

/// The table after decompression.
#[derive(Debug, Default, Deserialize)]
struct StoredTable {
    /// Kubernetes releases, oldest first: `1.36.3`.
    versions: Vec<String>,
    /// For each `GROUP/VERSION/KIND`: the index in `definitions` for each release, or `None` if the
    /// release does not have the kind.
    kinds: HashMap<String, Vec<Option<usize>>>,
    /// Schemas. The value of `$ref` is the index of another schema. A schema with `$ref` can have a
    /// default.
    definitions: Vec<Value>,
}

/// The table, and its definitions with resolved references.
#[derive(Debug)]
struct SchemaTable {
    stored: StoredTable,
    minors: Vec<Minor>,
    /// Definitions with resolved references. A definition is resolved when it is first requested.
    expanded: Vec<OnceLock<Value>>,
}

static LOADED: LazyLock<SchemaTable> = LazyLock::new(|| {
    let mut text = String::new();
    // If the table cannot be read, an empty table is used. The tests read the whole table.
    let stored: StoredTable = GzDecoder::new(TABLE)
        .read_to_string(&mut text)
        .ok()
        .and_then(|_| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    let minors = stored.versions.iter().map(|version| minor(version));
    SchemaTable {
        minors: minors.collect(),
        expanded: stored.definitions.iter().map(|_| OnceLock::new()).collect(),
        stored,
    }
});

/// Returns the minor version of a release: `1.36` for `1.36.3`.
fn minor(version: &str) -> Minor {
    let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
    Minor(parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

/// Returns the newest Kubernetes release in the table: `1.36.3`.
pub fn newest_release() -> &'static str {
    LOADED.stored.versions.last().map_or("", String::as_str)
}

/// The schemas of Kubernetes' own kinds, from the table.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltinSchemas;

impl KubernetesSchemas for BuiltinSchemas {
    fn versions(&self) -> &[Minor] {
        &LOADED.minors
    }

    fn schema(&self, version: Minor, group: &str, api: &str, kind: &str) -> Option<&Value> {
        let row = LOADED.stored.kinds.get(&format!("{group}/{api}/{kind}"))?;
        let column = LOADED.minors.iter().position(|minor| *minor == version)?;
        let number = *row.get(column)?.as_ref()?;
        Some(
            LOADED
                .expanded
                .get(number)?
                .get_or_init(|| LOADED.expand(number)),
        )
    }
}

impl SchemaTable {
    /// Returns a definition with resolved references.
    fn expand(&self, number: usize) -> Value {
        let definition = self.stored.definitions.get(number);
        definition.map_or(Value::Null, |schema| self.inline(schema))
    }

    fn inline(&self, schema: &Value) -> Value {
        match schema {
            Value::Object(map) => {
                if let Some(number) = map.get("$ref").and_then(Value::as_u64) {
                    let number = usize::try_from(number).unwrap_or(usize::MAX);
                    let mut schema = self.expand(number);
                    if let (Value::Object(schema), Some(default)) =
                        (&mut schema, map.get("default"))
                    {
                        schema.insert("default".to_owned(), default.clone());
                    }
                    return schema;
                }
                let fields = map
                    .iter()
                    .map(|(key, value)| (key.clone(), self.inline(value)));
                Value::Object(fields.collect())
            }
            // The table has no `oneOf`, `anyOf` or `allOf`, so lists contain only texts and
            // numbers, and never references.
            other => other.clone(),
        }
    }
}

#[cfg(test)]
mod tests;
