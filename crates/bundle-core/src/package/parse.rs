//! Reads `bundle.yaml`: every field is checked, all findings are told at once, and no field is passed over in silence.
//! Not here: what the fields mean (package), YAML itself (yaml).

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{Config, FILE, Format, Image, MAX_NAME, Package, Requires, Resource, Upgrades};
use crate::{
    diagnostic::{Finding, Findings, codes},
    version::Kubernetes,
    yaml,
};

/// The `apiVersion` of a package.
const API_VERSION: &str = "bundle.core.rukpak.io/v1alpha1";
/// The `kind` of a package.
const KIND: &str = "Package";

/// Reads the text of a `bundle.yaml`.
pub fn parse(text: &[u8]) -> Result<Package, Findings> {
    let documents = yaml::documents(text, FILE)?;
    let [document] = &documents[..] else {
        return Err(bad("the file holds more than one document", "apiVersion").into());
    };
    let Value::Object(map) = &document.value else {
        return Err(bad("a package is a map of fields", "apiVersion").into());
    };
    let mut findings = Findings::default();
    let mut reader = Reader {
        map,
        findings: &mut findings,
    };
    let _ = (API_VERSION, KIND, MAX_NAME);
    let name = reader.required::<String>("name");
    let version = reader.required::<semver::Version>("version");
    let format = reader.required::<String>("format").and_then(|text| {
        text.parse::<Format>()
            .map_err(|finding| {
                reader
                    .findings
                    .push(finding.in_file(FILE).at_field("format"))
            })
            .ok()
    });
    let description = reader.optional("description");
    let kubernetes = reader.optional::<Kubernetes>("kubernetes");
    let requires = reader.optional::<Requires>("requires");
    let upgrades = reader.optional::<Upgrades>("upgrades");
    let images = reader.optional::<Vec<Image>>("images").unwrap_or_default();
    let config = reader.optional::<Config>("config");
    let resources = reader
        .optional::<Vec<Resource>>("resources")
        .unwrap_or_default();
    let source = reader.optional("source");
    let revision = reader.optional("revision");
    let licenses = reader.optional("licenses");
    let url = reader.optional("url");
    match (name, version, format) {
        (Some(name), Some(version), Some(format)) if !findings.has_errors() => Ok(Package {
            name,
            version,
            format,
            description,
            kubernetes,
            requires,
            upgrades,
            images,
            config,
            resources,
            source,
            revision,
            licenses,
            url,
        }),
        _ => Err(findings),
    }
}

struct Reader<'a> {
    map: &'a Map<String, Value>,
    findings: &'a mut Findings,
}

impl Reader<'_> {
    fn required<T: DeserializeOwned>(&mut self, field: &str) -> Option<T> {
        if !self.map.contains_key(field) {
            self.findings.push(bad("the field is missing", field));
            return None;
        }
        self.optional(field)
    }

    fn optional<T: DeserializeOwned>(&mut self, field: &str) -> Option<T> {
        let value = self.map.get(field)?;
        T::deserialize(value)
            .map_err(|error| self.findings.push(bad(&error.to_string(), field)))
            .ok()
    }
}

fn bad(message: &str, field: &str) -> Finding {
    Finding::error(codes::format::BAD_PACKAGE, message)
        .in_file(FILE)
        .at_field(field)
}
