//! `cargo xtask schemas`: writes the table of the schemas of Kubernetes' built-in kinds, from the
//! Go module k8s.io/kubernetes of each version. The command needs `go` and its modules, so `cargo
//! xtask gen` only checks that the table is up to date.

mod enums;
mod transform;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value, json};

/// Path of the table from the repository's root.
const TABLE: &str = "crates/bundle-schemas/src/table.json.gz";
/// The Go module, and the paths of its OpenAPI documents and generated code.
const MODULE: &str = "k8s.io/kubernetes";
const DOCUMENTS: &str = "api/openapi-spec/v3";
const GENERATED: &str = "pkg/generated/openapi/zz_generated.openapi.go";
/// A release of each supported minor version, oldest first. The newest minor version is not in this
/// list: the table uses the release that the tests build.
const VERSIONS: &[&str] = &["1.33.13", "1.34.4", "1.35.4"];

/// Definitions of one version by their names in the OpenAPI document.
type Definitions = BTreeMap<String, Value>;

pub(crate) fn run() -> Result<()> {
    let newest = crate::apis::version()?;
    let versions: Vec<&str> = VERSIONS.iter().copied().chain([newest.as_str()]).collect();
    let all = versions
        .iter()
        .map(|version| read(version).with_context(|| format!("cannot read {MODULE} {version}")))
        .collect::<Result<Vec<_>>>()?;
    let required = all.last().map(transform::required).unwrap_or_default();
    let mut table = Table::default();
    for (index, definitions) in all.iter().enumerate() {
        for (name, definition) in definitions {
            for kind in transform::kinds(name, definition) {
                let number = table.add(definitions, name, &required)?;
                let row = table.kinds.entry(kind).or_default();
                row.resize(index, Value::Null);
                row.push(number.into());
            }
        }
    }
    for row in table.kinds.values_mut() {
        row.resize(versions.len(), Value::Null);
    }
    let count = table.kinds.len();
    let text = json!({
        "source": format!("Written by `cargo xtask schemas` from {DOCUMENTS} and {GENERATED} of {MODULE}."),
        "versions": versions,
        "kinds": table.kinds,
        "definitions": table.definitions,
    })
    .to_string();
    let mut writer = GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), Compression::best());
    writer.write_all(text.as_bytes())?;
    let bytes = writer.finish()?;
    let path = crate::apis::root()?.join(TABLE);
    std::fs::write(&path, &bytes).with_context(|| format!("cannot write {TABLE}"))?;
    println!(
        "{TABLE}: {count} kinds, {} schemas, {} versions, {} bytes ({} unpacked)",
        table.definitions.len(),
        versions.len(),
        bytes.len(),
        text.len()
    );
    Ok(())
}

/// The table. A schema that several versions or kinds use is stored only once.
#[derive(Default)]
struct Table {
    definitions: Vec<Value>,
    numbers: BTreeMap<String, usize>,
    kinds: BTreeMap<String, Vec<Value>>,
}

impl Table {
    /// Adds a definition and all definitions that it refers to. Returns the number of the
    /// definition.
    fn add(
        &mut self,
        all: &Definitions,
        name: &str,
        required: &transform::Required,
    ) -> Result<usize> {
        let definition = all
            .get(name)
            .with_context(|| format!("{name} is not defined"))?;
        let schema = transform::definition(name, definition, required);
        let schema = self.numbered(all, schema, required)?;
        let text = schema.to_string();
        if let Some(number) = self.numbers.get(&text) {
            return Ok(*number);
        }
        let number = self.definitions.len();
        self.definitions.push(schema);
        self.numbers.insert(text, number);
        Ok(number)
    }

    /// Replaces the name of the definition in each reference with its number. No used definition
    /// refers to itself.
    fn numbered(
        &mut self,
        all: &Definitions,
        value: Value,
        required: &transform::Required,
    ) -> Result<Value> {
        Ok(match value {
            Value::Object(map) => {
                if let Some(Value::String(name)) = map.get("$ref") {
                    let number = self.add(all, &name.clone(), required)?;
                    let mut map = map;
                    map.insert("$ref".to_owned(), number.into());
                    return Ok(Value::Object(map));
                }
                let mut numbered = Map::new();
                for (key, value) in map {
                    numbered.insert(key, self.numbered(all, value, required)?);
                }
                Value::Object(numbered)
            }
            other => other,
        })
    }
}

/// Returns the definitions of a version, with their enumerations.
fn read(version: &str) -> Result<Definitions> {
    let module = module(version)?;
    let mut definitions = Definitions::new();
    let folder = module.join(DOCUMENTS);
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let document: Value = serde_json::from_str(&std::fs::read_to_string(entry?.path())?)?;
        let schemas = document.pointer("/components/schemas");
        for (name, schema) in schemas.and_then(Value::as_object).into_iter().flatten() {
            definitions.insert(name.clone(), schema.clone());
        }
    }
    enums::add(
        &std::fs::read_to_string(module.join(GENERATED))?,
        &mut definitions,
    )?;
    Ok(definitions)
}

/// Returns the folder of the module, which `go` downloads and verifies.
fn module(version: &str) -> Result<PathBuf> {
    let output = Command::new("go")
        .args(["mod", "download", "-json"])
        .arg(format!("{MODULE}@v{version}"))
        // `go` runs outside of any module, so that it uses the version in the argument.
        .current_dir(std::env::temp_dir())
        .output()
        .context("cannot start go")?;
    if !output.status.success() {
        bail!("go: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let folder = answer["Dir"].as_str().context("go returned no folder")?;
    Ok(Path::new(folder).to_owned())
}

/// Returns a message if the newest version in the table is not the version that the tests build,
/// else `None`.
pub(crate) fn stale() -> Result<Option<String>> {
    let version = crate::apis::version()?;
    let fresh = bundle_schemas::newest_release() == version;
    Ok((!fresh)
        .then(|| format!("{TABLE} is not of Kubernetes {version}: run `cargo xtask schemas`")))
}
