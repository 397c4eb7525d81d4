//! Predicate types with their short names and required fields, and the in-toto statement of an
//! attestation.

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::json::JsonError;
use bundle_core::reference::Digest;
use serde_json::{Map, Value, json};

use crate::statement::LONGEST_TYPE;
use crate::{dsse, json};

/// Maximum size of a predicate, in bytes. Predicate, envelope and evidence together must not exceed
/// the limit for one signature ([`crate::verify::MAX_BYTES`]).
pub const MAX_PREDICATE: usize = 700 * 1024;
/// cosign's predicate type for content without its own predicate type. cosign writes the content
/// into the field `Data`.
const CUSTOM: &str = "https://cosign.sigstore.dev/attestation/v1";

/// Required fields of a predicate type, each with an optional prefix that the text of the field
/// must have. Other fields are not checked.
type Shape = &'static [(&'static str, Option<&'static str>)];

/// Predicate types: short name (as in cosign), URI and required fields.
const KINDS: &[(&str, &str, Shape)] = &[
    ("custom", CUSTOM, &[]),
    ("slsaprovenance", SLSA_02, SLSA_02_SHAPE),
    ("slsaprovenance02", SLSA_02, SLSA_02_SHAPE),
    (
        "slsaprovenance1",
        "https://slsa.dev/provenance/v1",
        &[("buildDefinition", None), ("runDetails", None)],
    ),
    ("spdx", SPDX, SPDX_SHAPE),
    ("spdxjson", SPDX, SPDX_SHAPE),
    (
        "cyclonedx",
        "https://cyclonedx.org/bom",
        &[("bomFormat", Some("CycloneDX"))],
    ),
    (
        "link",
        "https://in-toto.io/Link/v1",
        &[("materials", None), ("products", None)],
    ),
    (
        "vuln",
        "https://cosign.sigstore.dev/attestation/vuln/v1",
        &[("scanner", None), ("metadata", None)],
    ),
    (
        "openvex",
        "https://openvex.dev/ns",
        &[
            ("@context", Some("https://openvex.dev/ns")),
            ("statements", None),
        ],
    ),
];
const SLSA_02: &str = "https://slsa.dev/provenance/v0.2";
const SLSA_02_SHAPE: Shape = &[("builder", None), ("buildType", None)];
const SPDX: &str = "https://spdx.dev/Document";
const SPDX_SHAPE: Shape = &[("spdxVersion", Some("SPDX-"))];

/// URI of a predicate type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateType(String);

impl PredicateType {
    /// Parses a short name of cosign, or a URI. Rejects the predicate type of signatures.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some((_, uri, _)) = KINDS.iter().find(|(name, _, _)| *name == text) {
            return Ok(Self((*uri).to_owned()));
        }
        if text == dsse::SIGNED {
            return Err(
                "it is the predicate type of a signature, not of an attestation".to_owned(),
            );
        }
        let printable = text.bytes().all(|byte| byte.is_ascii_graphic());
        let scheme = text.split_once(':').map_or(
            "",
            |(scheme, rest)| {
                if rest.is_empty() { "" } else { scheme }
            },
        );
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
        if text.len() > LONGEST_TYPE || !printable || !is_scheme {
            let names: Vec<&str> = KINDS.iter().map(|(name, _, _)| *name).collect();
            return Err(format!(
                "it is not one of {}, and not a URI of at most {LONGEST_TYPE} bytes",
                names.join(", ")
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// Returns the URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn shape(&self) -> Shape {
        KINDS
            .iter()
            .find(|(_, uri, _)| *uri == self.0)
            .map_or(&[], |(_, _, shape)| *shape)
    }
}

/// Predicate of an attestation: a JSON object and its type.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicate {
    kind: PredicateType,
    /// JSON text exactly as the author wrote it, including the formats of numbers.
    text: String,
    value: Value,
}

impl Predicate {
    /// Parses a predicate. Like cosign, writes `now` into predicates of type `custom`.
    pub fn read(kind: PredicateType, bytes: &[u8], now: &str) -> Result<Self, Findings> {
        let refused = |why: String| {
            let message = format!("invalid predicate for type {}: {why}", kind.as_str());
            Finding::error(codes::trust::PREDICATE_REFUSED, message)
        };
        let fits = |length: usize| {
            if length <= MAX_PREDICATE {
                return Ok(());
            }
            let why = format!(
                "it has {length} bytes, more than the limit of {MAX_PREDICATE} for an attestation"
            );
            let hint = "attest a shorter predicate with the digest of the document, and attach the document as a referrer";
            Err(refused(why).hint(hint))
        };
        fits(bytes.len())?;
        let Some(text) = std::str::from_utf8(bytes).ok().map(str::trim) else {
            return Err(refused("it is not UTF-8".to_owned()).into());
        };
        let unverifiable = |error: &JsonError| {
            let why = json::rejection(error, "it is nested too deeply");
            refused(format!(
                "verification would reject the attestation as one {why}"
            ))
        };
        let object = bundle_core::json::object(text.as_bytes()).map_err(|error| match &error {
            JsonError::Malformed(why) => refused(format!("invalid JSON ({why})")),
            JsonError::NotAnObject => refused("it is not a JSON object".to_owned()),
            _ => unverifiable(&error),
        })?;
        // `bundle_core::json` parses the statement, in which the predicate is one level deeper. A
        // predicate that this parser rejects must not be signed.
        bundle_core::json::object(format!(r#"{{"predicate":{text}}}"#).as_bytes())
            .map_err(|error| unverifiable(&error))?;
        let missing: Findings = kind
            .shape()
            .iter()
            .filter_map(|wanted| lacks(&object, *wanted))
            .map(|why| {
                refused(why)
                    .hint("check that the file is a predicate of the type that --type selects")
            })
            .collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        if kind.as_str() != CUSTOM {
            let text = text.to_owned();
            let value = Value::Object(object);
            return Ok(Self { kind, text, value });
        }
        let value = json!({ "Data": text, "Timestamp": now });
        // Checks the size again: as a text within JSON, the predicate is escaped and therefore
        // longer.
        let text = value.to_string();
        fits(text.len())?;
        Ok(Self { kind, text, value })
    }

    /// Returns the predicate type.
    pub fn kind(&self) -> &PredicateType {
        &self.kind
    }

    /// Returns `true` if `other` is the same predicate. For cosign's `custom` type only the field
    /// `Data` is compared, because another field contains the time of writing.
    pub(crate) fn is_same_predicate(&self, other: &Value) -> bool {
        match self.kind.as_str() {
            CUSTOM => self.value["Data"] == other["Data"],
            _ => self.value == *other,
        }
    }
}

fn lacks(object: &Map<String, Value>, (field, begins): (&str, Option<&str>)) -> Option<String> {
    match (object.get(field), begins) {
        (None, _) => Some(format!("the field `{field}` is missing")),
        (Some(value), Some(begins)) => {
            let fits = value.as_str().is_some_and(|text| text.starts_with(begins));
            (!fits).then(|| format!("the field `{field}` does not begin with `{begins}`"))
        }
        (Some(_), None) => None,
    }
}

/// Returns a statement with `predicate` for a digest. `name` is only information, and verification
/// ignores it.
pub fn statement(name: &str, digest: &Digest, predicate: &Predicate) -> Vec<u8> {
    let subject = json!([{ "name": name, "digest": { "sha256": digest.hex() } }]);
    // The text of the statement is concatenated, so that the predicate is signed exactly as its
    // author wrote it. The predicate was already parsed as one JSON object.
    format!(
        r#"{{"_type":{},"subject":{subject},"predicateType":{},"predicate":{}}}"#,
        Value::from(dsse::STATEMENT),
        Value::from(predicate.kind.as_str()),
        predicate.text
    )
    .into_bytes()
}

#[cfg(test)]
mod tests;
