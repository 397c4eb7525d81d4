//! Rules for each document of a bundle, and rules for all documents together. This module has no
//! rules for the fields of one kind, because the API server checks these fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Manifest, ObjectId, normalize};
use crate::{
    diagnostic::{Code, Finding, Findings, codes},
    names::{self, KubeName, NameKind},
    text::bounded,
    yaml::Document,
};

/// Maximum length of an object name in findings, in bytes. The name is truncated once, and all
/// findings of the object use the truncated name.
const SUBJECT: usize = 1 << 10;

/// Parses one document as an object. All errors are added to `findings`. Returns `None` if the
/// identity of the object is incomplete.
pub fn read(document: Document, file: &str, findings: &mut Findings) -> Option<Manifest> {
    let Document { mut value, line } = document;
    let mut check = Check {
        file,
        line,
        subject: None,
        findings,
    };
    let id = check.document(&value)?;
    normalize(&mut value);
    Some(Manifest {
        id,
        value,
        file: file.to_owned(),
        line,
    })
}

/// Adds a finding for each object that an earlier document already defines, with both locations.
pub fn distinct(objects: &[Manifest], findings: &mut Findings) {
    let mut seen: BTreeMap<_, &Manifest> = BTreeMap::new();
    for object in objects {
        let first = *seen.entry(object.id.identity()).or_insert(object);
        if !std::ptr::eq(first, object) {
            findings.push(
                Finding::error(
                    codes::format::DUPLICATE_OBJECT,
                    format!(
                        "the same object is at {}:{} already",
                        first.file, first.line
                    ),
                )
                .in_file(&object.file)
                .at_line(object.line)
                .about(object.id.to_string())
                .hint("remove or rename one of the two"),
            );
        }
    }
}

/// State of the check of one document.
struct Check<'a> {
    file: &'a str,
    line: usize,
    /// Name of the object in findings; `None` until the name is parsed.
    subject: Option<String>,
    findings: &'a mut Findings,
}

impl Check<'_> {
    fn document(&mut self, value: &Value) -> Option<ObjectId> {
        let Value::Object(map) = value else {
            let what = describe(value);
            self.report(
                codes::format::NOT_AN_OBJECT,
                "",
                format!("expected a Kubernetes object, found {what}"),
                "manifests/ must contain only manifests: each document has apiVersion, kind and metadata",
            );
            return None;
        };
        let api_version = self.text(map, "apiVersion", "apiVersion");
        let kind = self.text(map, "kind", "kind");
        self.subject = kind.map(|kind| bounded(kind, SUBJECT));
        let metadata = match map.get("metadata") {
            Some(Value::Object(metadata)) => Some(metadata),
            None | Some(Value::Null) => {
                self.missing("metadata.name");
                None
            }
            Some(other) => {
                self.not_a_map("metadata", other);
                None
            }
        };
        let name = metadata.and_then(|metadata| self.name(metadata));
        if let (Some(kind), Some(name)) = (kind, name) {
            let (kind, name) = (bounded(kind, SUBJECT), bounded(name, SUBJECT));
            self.subject = Some(format!("{kind}/{name}"));
        }
        let namespace = metadata.and_then(|metadata| self.namespace(metadata));
        if let Some(metadata) = metadata {
            self.texts_in(metadata, "labels");
            self.texts_in(metadata, "annotations");
            self.of_a_cluster(metadata);
            self.owned(metadata);
        }
        let (group, version) = self.api_version(api_version?)?;
        let (kind, name) = (self.kind(kind?)?, name?);
        if let Err(why) = KubeName::parse(NameKind::of(&group, &kind), name) {
            self.report(
                codes::format::BAD_NAME,
                "metadata.name",
                format!("`{name}` is not a valid name: {why}"),
                "choose a name that the API server accepts",
            );
        }
        Some(ObjectId {
            group,
            version,
            kind,
            namespace,
            name: name.to_owned(),
        })
    }

    fn api_version(&mut self, text: &str) -> Option<(String, String)> {
        let (group, version) = match text.split_once('/') {
            Some((group, version)) if names::is_dns_subdomain(group) => (group, version),
            Some(_) => ("", ""),
            None => ("", text),
        };
        if names::is_dns_label(version) {
            return Some((group.to_owned(), version.to_owned()));
        }
        self.report(
            codes::format::BAD_NAME,
            "apiVersion",
            format!("`{text}` is not an API version"),
            "write `v1` or `group/version`, such as `apps/v1`",
        );
        None
    }

    fn kind(&mut self, text: &str) -> Option<String> {
        if names::is_dns_label(&text.to_ascii_lowercase()) {
            return Some(text.to_owned());
        }
        self.report(
            codes::format::BAD_NAME,
            "kind",
            format!("`{text}` is not a kind"),
            "a kind is one word, such as `ConfigMap`",
        );
        None
    }

    fn name<'v>(&mut self, metadata: &'v Map<String, Value>) -> Option<&'v str> {
        let named = metadata.get("name").is_some_and(|name| !name.is_null());
        if !named && metadata.contains_key("generateName") {
            self.report(
                codes::format::MISSING_FIELD,
                "metadata.generateName",
                "an object of a bundle requires a name; a generated name would differ in each installation".to_owned(),
                "give it a metadata.name instead",
            );
            return None;
        }
        self.text(metadata, "name", "metadata.name")
    }

    /// Returns the namespace. An empty namespace counts as absent, as in the API server.
    fn namespace(&mut self, metadata: &Map<String, Value>) -> Option<String> {
        let text = match metadata.get("namespace")? {
            Value::Null => return None,
            Value::String(text) if text.is_empty() => return None,
            Value::String(text) => text,
            other => {
                self.not_text("metadata.namespace", other);
                return None;
            }
        };
        if !names::is_dns_label(text) {
            self.report(
                codes::format::BAD_NAME,
                "metadata.namespace",
                format!("`{text}` is not a valid name of a namespace"),
                "a namespace has at most 63 lower-case letters, digits and `-`",
            );
        }
        Some(text.clone())
    }

    /// Returns a required text field. If the field is missing or invalid, adds a finding and
    /// returns `None`.
    fn text<'v>(&mut self, map: &'v Map<String, Value>, key: &str, field: &str) -> Option<&'v str> {
        match map.get(key) {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            None | Some(Value::Null | Value::String(_)) => {
                self.missing(field);
                None
            }
            Some(other) => {
                self.not_text(field, other);
                None
            }
        }
    }

    fn texts_in(&mut self, metadata: &Map<String, Value>, key: &str) {
        match metadata.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(map)) => {
                for (name, value) in map {
                    if !value.is_string() {
                        self.not_text(&format!("metadata.{key}[{name}]"), value);
                    }
                }
            }
            Some(other) => self.not_a_map(&format!("metadata.{key}"), other),
        }
    }

    /// Reports fields that the API server sets. The API server rejects these fields in an apply
    /// request.
    fn of_a_cluster(&mut self, metadata: &Map<String, Value>) {
        for key in ["uid", "resourceVersion", "managedFields"] {
            let set = match metadata.get(key) {
                None | Some(Value::Null) => false,
                Some(Value::String(text)) => !text.is_empty(),
                Some(Value::Array(items)) => !items.is_empty(),
                Some(_) => true,
            };
            if set {
                self.report(
                    codes::format::FROM_A_CLUSTER,
                    &format!("metadata.{key}"),
                    "the object was copied from a cluster, and API servers reject this field".to_owned(),
                    "remove metadata.uid, resourceVersion, managedFields, creationTimestamp, generation, and status",
                );
                return;
            }
        }
    }

    /// Rejects owner references. If the owner does not exist, the garbage collector deletes the
    /// object after each installation. If the owner exists, a user who can delete the owner can
    /// delete the object.
    fn owned(&mut self, metadata: &Map<String, Value>) {
        let owners = metadata.get("ownerReferences");
        if owners.is_some_and(|owners| !owners.is_null() && owners.as_array() != Some(&vec![])) {
            self.report(
                codes::format::OWNED,
                "metadata.ownerReferences",
                "an object of a bundle must not have an owner".to_owned(),
                "remove metadata.ownerReferences: they contain UIDs, which differ in each cluster",
            );
        }
    }

    fn missing(&mut self, field: &str) {
        self.report(
            codes::format::MISSING_FIELD,
            field,
            "the field is missing".to_owned(),
            "each object has apiVersion, kind and metadata.name",
        );
    }

    fn not_text(&mut self, field: &str, value: &Value) {
        let what = describe(value);
        self.report(
            codes::format::NOT_TEXT,
            field,
            format!("expected a string, found {what}"),
            "put the value in quotes",
        );
    }

    fn not_a_map(&mut self, field: &str, value: &Value) {
        let what = describe(value);
        self.report(
            codes::format::NOT_AN_OBJECT,
            field,
            format!("expected a map, found {what}"),
            "check the indentation",
        );
    }

    fn report(&mut self, code: Code, field: &str, message: String, hint: &str) {
        let mut finding = Finding::error(code, message)
            .in_file(self.file)
            .at_line(self.line)
            .hint(hint);
        finding.place.subject.clone_from(&self.subject);
        if !field.is_empty() {
            finding = finding.at_field(field);
        }
        self.findings.push(finding);
    }
}

/// Returns a short description of a value.
fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing (null)".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(value) => {
            let short: String = value.chars().take(40).collect();
            format!("the text {short:?}")
        }
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn check(text: &str) -> (Vec<Manifest>, Findings) {
        let mut findings = Findings::default();
        let objects: Vec<_> = yaml::documents(text.as_bytes(), "manifests/a.yaml")
            .unwrap()
            .into_iter()
            .filter_map(|document| read(document, "manifests/a.yaml", &mut findings))
            .collect();
        distinct(&objects, &mut findings);
        (objects, findings)
    }

    #[test]
    fn reads_identity_of_objects() {
        let (objects, findings) = check(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: team-a, labels: {a: '1'}}\n---\n\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {name: team-a, namespace: ''}\n",
        );
        assert_eq!(findings, Findings::default());
        let ids: Vec<_> = objects.iter().map(|object| object.id.to_string()).collect();
        assert_eq!(ids, ["Deployment.apps/team-a/web", "Namespace/team-a"]);
        assert_eq!(objects[0].gvk(), ("apps", "v1", "Deployment"));
        assert_eq!(objects[0].id.api_version(), "apps/v1");
        assert_eq!(objects[1].line, 6);
        assert_eq!(objects[1].id.namespace, None);
    }

    #[test]
    fn reports_all_problems_of_a_document() {
        for (text, expected) in [
            (
                "hello",
                &["manifests/a.yaml:1: expected a Kubernetes object, found the text \"hello\""][..],
            ),
            (
                "- 1",
                &["manifests/a.yaml:1: expected a Kubernetes object, found a list"],
            ),
            (
                "{}",
                &[
                    "manifests/a.yaml:1: apiVersion: the field is missing",
                    "manifests/a.yaml:1: kind: the field is missing",
                    "manifests/a.yaml:1: metadata.name: the field is missing",
                ],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {}",
                &["manifests/a.yaml:1: ConfigMap: metadata.name: the field is missing"],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: web",
                &[
                    "manifests/a.yaml:1: ConfigMap: metadata: expected a map, found the text \"web\"",
                ],
            ),
            (
                "apiVersion: v1\nkind: Job\nmetadata: {generateName: x-}",
                &[
                    "manifests/a.yaml:1: Job: metadata.generateName: an object of a bundle requires a name; a generated name would differ in each installation",
                ],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: 12, namespace: on}",
                &[
                    "manifests/a.yaml:1: ConfigMap: metadata.name: expected a string, found the number 12",
                    "manifests/a.yaml:1: ConfigMap: metadata.namespace: expected a string, found the boolean true",
                ],
            ),
            (
                "apiVersion: a/b/c\nkind: Config Map\nmetadata: {name: web}",
                &["manifests/a.yaml:1: Config Map/web: apiVersion: `a/b/c` is not an API version"],
            ),
            (
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: Web_1, namespace: a.b, annotations: {x: true}, labels: [a], uid: x}",
                &[
                    "manifests/a.yaml:1: ConfigMap/Web_1: metadata.namespace: `a.b` is not a valid name of a namespace",
                    "manifests/a.yaml:1: ConfigMap/Web_1: metadata.labels: expected a map, found a list",
                    "manifests/a.yaml:1: ConfigMap/Web_1: metadata.annotations[x]: expected a string, found the boolean true",
                    "manifests/a.yaml:1: ConfigMap/Web_1: metadata.uid: the object was copied from a cluster, and API servers reject this field",
                    "manifests/a.yaml:1: ConfigMap/Web_1: metadata.name: `Web_1` is not a valid name: a name has lower-case letters, digits, dashes and dots; each part begins and ends with a letter or digit",
                ],
            ),
        ] {
            let (_, findings) = check(text);
            let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
            assert_eq!(said, expected, "{text}");
            assert!(findings.iter().all(|finding| finding.hint.is_some()));
        }
    }

    #[test]
    fn rejects_owner_references_and_accepts_an_empty_list_of_them() {
        let object = |owners: &str| {
            let text = format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a, ownerReferences: {owners}}}\n"
            );
            let (_, findings) = check(&text);
            findings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let refused = [
            "manifests/a.yaml:1: ConfigMap/a: metadata.ownerReferences: an object of a bundle must not have an owner",
        ];
        for owners in [
            "[{apiVersion: v1, kind: Pod, name: b, uid: c}]",
            "[{}]",
            "{}",
            "x",
        ] {
            assert_eq!(object(owners), refused, "{owners}");
        }
        for owners in ["[]", "null"] {
            assert_eq!(object(owners), [""; 0], "{owners}");
        }
    }

    #[test]
    fn drops_null_fields_and_placeholders() {
        let (objects, _) = check(
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a, creationTimestamp: null}\nspec: {replicas: null, paused: false}\n",
        );
        assert_eq!(
            objects[0].value["spec"],
            serde_json::json!({"paused": false})
        );
    }

    #[test]
    fn rejects_one_object_in_two_api_versions() {
        let object = |version: &str| {
            format!(
                "apiVersion: apps/{version}\nkind: Deployment\nmetadata: {{name: web, namespace: a}}\n"
            )
        };
        let (_, findings) = check(&format!(
            "{}---\n{}---\n{}",
            object("v1"),
            object("v1beta1"),
            object("v1")
        ));
        let said: Vec<_> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "manifests/a.yaml:5: Deployment.apps/a/web: the same object is at manifests/a.yaml:1 already",
                "manifests/a.yaml:9: Deployment.apps/a/web: the same object is at manifests/a.yaml:1 already",
            ]
        );
    }
}
