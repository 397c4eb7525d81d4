//! Objects in the files of `check`, and the kind of review of each object.

use std::path::PathBuf;

use bundle_core::diagnostic::Findings;
use bundle_core::policy::Policy;
use bundle_core::review::{Class, Kind};
use bundle_core::yaml;
use serde_json::Value;

use crate::failure::Outcome;
use crate::system::files;

/// Kind of review of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReviewKind {
    /// Admission reviews the object.
    Reviewed(Kind),
    /// A ProvisionerClass, which is parsed.
    Class,
    /// A SignaturePolicy, which is parsed.
    Policy,
    /// An object of another kind, which is not reviewed.
    Other,
}

/// An object and its location.
pub(super) struct ReviewedObject {
    /// Kind of review.
    pub(super) review: ReviewKind,
    /// Object.
    pub(super) value: Value,
    /// File.
    pub(super) file: String,
    /// First line of the object, from 1.
    pub(super) line: usize,
}

impl ReviewedObject {
    fn text(&self, pointer: &str) -> &str {
        self.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    /// Returns the name of the object, or an example of a name from `generateName`.
    pub(super) fn name(&self) -> String {
        match (
            self.text("/metadata/name"),
            self.text("/metadata/generateName"),
        ) {
            ("", "") => String::new(),
            // The API server appends five characters.
            ("", prefix) => format!("{prefix}xxxxx"),
            (name, _) => name.to_owned(),
        }
    }

    /// Returns kind and name: `bundle.core.rukpak.io/web`.
    pub(super) fn title(&self) -> String {
        let kind = self.text("/kind").to_lowercase();
        let group = self
            .text("/apiVersion")
            .split_once('/')
            .map_or("", |(group, _)| group);
        let dot = if group.is_empty() { "" } else { "." };
        format!("{kind}{dot}{group}/{}", self.name())
    }
}

/// Reads the files. The items of a List are separate objects.
pub(super) fn read(paths: &[PathBuf]) -> Outcome<Vec<ReviewedObject>> {
    let mut found = Vec::new();
    let mut findings = Findings::default();
    let paths: Vec<PathBuf> = paths
        .iter()
        .map(|path| files::of_objects(path))
        .collect::<Outcome<Vec<_>>>()?
        .concat();
    for path in &paths {
        let file = if path.as_os_str() == "-" {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        match yaml::documents(&files::read(path)?, &file) {
            Ok(documents) => {
                for document in documents {
                    append(document.value, &file, document.line, &mut found);
                }
            }
            Err(errors) => findings.extend(errors),
        }
    }
    if findings.has_errors() {
        return Err(findings.into());
    }
    Ok(found)
}

/// Appends an object, or the items of a List.
fn append(value: Value, file: &str, line: usize, found: &mut Vec<ReviewedObject>) {
    let is_list = value["kind"]
        .as_str()
        .is_some_and(|kind| kind.ends_with("List"));
    if let (true, Some(items)) = (is_list, value["items"].as_array()) {
        for item in items {
            append(item.clone(), file, line, found);
        }
        return;
    }
    found.push(ReviewedObject {
        review: review_kind(&value),
        value,
        file: file.to_owned(),
        line,
    });
}

fn review_kind(value: &Value) -> ReviewKind {
    if value["apiVersion"] != bundle_api::names::API_VERSION {
        return ReviewKind::Other;
    }
    let kind = value["kind"].as_str().unwrap_or_default();
    match kind {
        "ProvisionerClass" => ReviewKind::Class,
        "SignaturePolicy" => ReviewKind::Policy,
        _ => Kind::ALL
            .into_iter()
            .find(|one| one.as_str() == kind)
            .map_or(ReviewKind::Other, ReviewKind::Reviewed),
    }
}

/// Returns the errors of a class that cannot be parsed.
pub(super) fn problems(found: &ReviewedObject) -> Findings {
    match found.review {
        ReviewKind::Class => Class::parse(&found.name(), &found.value["spec"])
            .err()
            .unwrap_or_default(),
        ReviewKind::Policy | ReviewKind::Reviewed(_) | ReviewKind::Other => Findings::default(),
    }
}

/// Returns the policy of the file, without the keys and trust roots that the policy references in
/// the cluster.
pub(super) fn policy(found: &ReviewedObject) -> Policy {
    Policy::read(&found.name(), &found.value["spec"])
}
