//! Probes of `bundle.yaml`: assertions that an object of the content must meet to be healthy. The
//! assertions have the same names as in OLM v1 and Package Operator. `plan::health` evaluates the
//! probes.

use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::texts::{bad, pointer, title};
use crate::diagnostic::{Finding, codes};
use crate::object::{GroupKind, ObjectId, is_dns_subdomain};

/// Maximum number of probes of a package.
const MAX_PROBES: usize = 32;
/// Maximum number of assertions of a probe.
const MAX_ASSERTIONS: usize = 8;
/// Maximum size of all probes of a package together, as JSON in bytes. The pod keeps the probes of
/// installed content in memory.
pub const MAX_BYTES: usize = 16 << 10;

/// Assertions for the objects that a selector selects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Objects of the content that must meet the assertions.
    pub selector: ProbeSelector,
    /// Assertions. An object is healthy if it meets all of them.
    pub assertions: Vec<Assertion>,
}

/// Selection of objects by kind and, if given, by namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProbeSelector {
    /// API group; empty for the core group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind of the objects.
    pub kind: String,
    /// Namespace of the objects; `None` selects objects in all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Name of the object; `None` selects objects of all names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Assertion about one object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Assertion {
    /// A condition in `status.conditions` has this status.
    ConditionEqual {
        /// Type of the condition.
        r#type: String,
        /// Status of the condition: `True`, `False` or `Unknown`.
        status: String,
    },
    /// Two fields exist and are equal.
    FieldsEqual {
        /// JSON pointer of the first field.
        field_a: String,
        /// JSON pointer of the second field.
        field_b: String,
    },
    /// A field has this value.
    FieldValue {
        /// JSON pointer of the field.
        field_path: String,
        /// Value as text. Numbers and booleans are compared by their JSON text.
        value: String,
    },
}

impl ProbeSelector {
    /// Returns true if the selector names this kind.
    pub fn selects_kind(&self, group: &str, kind: &str) -> bool {
        self.group == group && self.kind == kind
    }

    /// Returns true if the selector selects the object with this kind, namespace and name.
    pub fn selects(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> bool {
        let has_namespace = |wanted: &String| namespace == Some(wanted.as_str());
        self.selects_kind(&kind.group, &kind.kind)
            && self.namespace.as_ref().is_none_or(has_namespace)
            && self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Returns true if the selector selects the object that has this id in a manifest. An object
    /// without a namespace can be installed into each namespace. Therefore its missing namespace
    /// matches each namespace of the selector.
    pub fn selects_manifest(&self, id: &ObjectId) -> bool {
        let namespace = id.namespace.as_deref().or(self.namespace.as_deref());
        let kind = GroupKind::new(id.group.as_str(), id.kind.as_str());
        self.selects(&kind, namespace, &id.name)
    }

    /// Returns the kind for messages: `Widget.example.com`.
    pub fn kind_text(&self) -> String {
        GroupKind::new(self.group.as_str(), self.kind.as_str()).to_string()
    }
}

/// Reads the probes of a package.
pub(super) fn probes(fields: &Fields<'_>) -> Vec<Probe> {
    let probes = fields.list("probes", |probe| {
        let selector = probe.required_map("selector").and_then(|it| selector(&it));
        let assertions = probe.list("assertions", assertion);
        let message = match probe.value("assertions") {
            None => Some("the field is missing"),
            Some(Value::Array(items)) if items.is_empty() => Some("the list is empty"),
            Some(_) => None,
        };
        if let Some(message) = message {
            probe.file().add_error(
                &probe.at("assertions"),
                codes::format::BAD_PACKAGE,
                message,
                "add `assertions: [{conditionEqual: {type: Ready, status: \"True\"}}]`",
            );
        }
        check_length(probe, "assertions", assertions.len(), MAX_ASSERTIONS);
        Some(Probe {
            selector: selector?,
            assertions,
        })
    });
    check_length(fields, "probes", probes.len(), MAX_PROBES);
    let bytes = serde_json::to_vec(&probes).map_or(0, |json| json.len());
    if bytes > MAX_BYTES {
        fields.file().add_error(
            "probes",
            codes::format::BAD_PACKAGE,
            format!("the probes have {bytes} bytes as JSON, more than the limit of {MAX_BYTES}"),
            "use fewer probes, or shorter values",
        );
    }
    probes
}

fn check_length(fields: &Fields<'_>, key: &str, length: usize, limit: usize) {
    if length > limit {
        fields.file().add_error(
            &fields.at(key),
            codes::format::BAD_PACKAGE,
            format!("the list has {length} items, more than the limit of {limit}"),
            "remove items",
        );
    }
}

fn selector(fields: &Fields<'_>) -> Option<ProbeSelector> {
    let group = fields.parsed("group", group);
    let kind = fields.required_as("kind", kind);
    let selector = ProbeSelector {
        group: group.unwrap_or_default(),
        kind: kind?,
        namespace: fields.parsed("namespace", title),
        name: fields.parsed("name", title),
    };
    if selector.selects_kind("", "Secret") {
        fields.file().add_error(
            &fields.at("kind"),
            codes::format::BAD_PACKAGE,
            "probes cannot read Secrets",
            "select the object that uses the Secret",
        );
    }
    Some(selector)
}

fn assertion(fields: &Fields<'_>) -> Option<Assertion> {
    let condition = fields.fields("conditionEqual").and_then(|condition| {
        let r#type = condition.required_as("type", title);
        let status = condition.required_as("status", status);
        Some(Assertion::ConditionEqual {
            r#type: r#type?,
            status: status?,
        })
    });
    let equal = fields.fields("fieldsEqual").and_then(|equal| {
        let field_a = equal.required_as("fieldA", pointer);
        let field_b = equal.required_as("fieldB", pointer);
        Some(Assertion::FieldsEqual {
            field_a: field_a?,
            field_b: field_b?,
        })
    });
    let value = fields.fields("fieldValue").and_then(|value| {
        let field_path = value.required_as("fieldPath", pointer);
        let text = value.required_as("value", |text| Ok::<_, Finding>(text.to_owned()));
        Some(Assertion::FieldValue {
            field_path: field_path?,
            value: text?,
        })
    });
    let given = ["conditionEqual", "fieldsEqual", "fieldValue"];
    let count = given.iter().filter(|key| fields.value(key).is_some());
    if count.count() != 1 && fields.value("cel").is_none() {
        fields.file().add_error(
            fields.path(),
            codes::format::BAD_PACKAGE,
            "an assertion has exactly one of conditionEqual, fieldsEqual and fieldValue",
            "write one list item for each assertion",
        );
    }
    condition.or(equal).or(value)
}

/// Validates an API group.
fn group(text: &str) -> Result<String, Finding> {
    if is_dns_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid API group `{text}`"))
        .hint("write a group such as example.com; omit the field for the core group"))
}

/// Validates a kind without group.
fn kind(text: &str) -> Result<String, Finding> {
    let is_valid = text.starts_with(|first: char| first.is_ascii_uppercase())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if is_valid {
        return Ok(text.to_owned());
    }
    Err(bad(format!("invalid kind `{text}`"))
        .hint("write the kind without its group: `group: example.com`, `kind: Widget`"))
}

/// Validates the status of a condition.
fn status(text: &str) -> Result<String, Finding> {
    if matches!(text, "True" | "False" | "Unknown") {
        return Ok(text.to_owned());
    }
    Err(bad(format!("`{text}` is neither True, False nor Unknown"))
        .hint("write `status: \"True\"`"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::{Package, parse};

    const HEAD: &str = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\nprobes:\n";

    fn parsed(probes: &str) -> Result<Package, Vec<String>> {
        parse(format!("{HEAD}{probes}").as_bytes()).map_err(|findings| {
            let text = |finding: &Finding| {
                let hint = finding.hint.as_deref().unwrap_or("NO HINT");
                format!("{finding} ({hint})")
            };
            findings.iter().map(text).collect()
        })
    }

    fn id(namespace: Option<&str>, name: &str) -> ObjectId {
        ObjectId {
            group: "example.com".to_owned(),
            version: "v1".to_owned(),
            kind: "Widget".to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    #[test]
    fn reads_each_assertion_and_selector() {
        let package = parsed(
            "- selector: {group: example.com, kind: Widget, namespace: a, name: web}
  assertions:
  - conditionEqual: {type: Ready, status: \"True\"}
  - fieldsEqual: {fieldA: /spec/size, fieldB: /status/size}
  - fieldValue: {fieldPath: /status/phase, value: Running}
- selector: {kind: Pod}
  assertions: [{fieldValue: {fieldPath: /status/phase, value: \"\"}}]
",
        )
        .unwrap();
        assert_eq!(package.probes.len(), 2);
        assert_eq!(package.probes[0].assertions.len(), 3);
        let again = parse(package.to_yaml().as_bytes()).unwrap();
        assert_eq!(again, package);
        let selector = &package.probes[0].selector;
        assert_eq!(selector.kind_text(), "Widget.example.com");
        for (id, expected) in [
            (id(Some("a"), "web"), true),
            (id(None, "web"), true),
            (id(Some("b"), "web"), false),
            (id(Some("a"), "other"), false),
        ] {
            assert_eq!(selector.selects_manifest(&id), expected, "{id}");
        }
    }

    #[test]
    fn errors_name_field_and_correction() {
        let one = "assertions: [{conditionEqual: {type: Ready, status: \"True\"}}]";
        for (probe, expected) in [
            (
                "- selector: {kind: Pod}\n".to_owned(),
                "probes[0].assertions: the field is missing (add `assertions: [{conditionEqual: {type: Ready, status: \"True\"}}]`)",
            ),
            (
                format!("- {one}\n"),
                "probes[0].selector: the field is missing (add `selector: {group: example.com, kind: Widget}`)",
            ),
            (
                format!("- selector: {{kind: Secret}}\n  {one}\n"),
                "probes[0].selector.kind: probes cannot read Secrets (select the object that uses the Secret)",
            ),
            (
                format!("- selector: {{kind: Widget.example.com}}\n  {one}\n"),
                "probes[0].selector.kind: invalid kind `Widget.example.com` (write the kind without its group: `group: example.com`, `kind: Widget`)",
            ),
            (
                format!("- selector: {{kind: Pod, group: 'a b'}}\n  {one}\n"),
                "probes[0].selector.group: invalid API group `a b` (write a group such as example.com; omit the field for the core group)",
            ),
            (
                "- selector: {kind: Pod}\n  assertions: [{cel: {rule: self.a == 1}}]\n".to_owned(),
                "probes[0].assertions[0].cel: unknown field `cel` (CEL rules are not supported, because their evaluation has no limit of memory and time: use conditionEqual, fieldsEqual or fieldValue)",
            ),
            (
                "- selector: {kind: Pod}\n  assertions: [{}]\n".to_owned(),
                "probes[0].assertions[0]: an assertion has exactly one of conditionEqual, fieldsEqual and fieldValue (write one list item for each assertion)",
            ),
            (
                "- selector: {kind: Pod}\n  assertions: [{fieldValue: {fieldPath: status.phase, value: a}}]\n".to_owned(),
                "probes[0].assertions[0].fieldValue.fieldPath: invalid JSON pointer `status.phase` (write a JSON pointer such as /spec/replicas)",
            ),
            (
                "- selector: {kind: Pod}\n  assertions: [{conditionEqual: {type: Ready, status: true}}]\n".to_owned(),
                "probes[0].assertions[0].conditionEqual.status: the value is the boolean true, but must be a string (put the value in quotes)",
            ),
            (
                "- selector: {kind: Pod}\n  assertions: [{conditionEqual: {type: Ready, status: yes it is}}]\n".to_owned(),
                "probes[0].assertions[0].conditionEqual.status: `yes it is` is neither True, False nor Unknown (write `status: \"True\"`)",
            ),
        ] {
            let found = parsed(&probe).unwrap_err();
            assert_eq!(found, [format!("bundle.yaml:6: {expected}")]);
        }
    }

    #[test]
    fn numbers_and_bytes_are_limited() {
        let one =
            "- {selector: {kind: Pod}, assertions: [{fieldValue: {fieldPath: /a, value: b}}]}\n";
        assert!(parsed(&one.repeat(MAX_PROBES)).is_ok());
        let many = parsed(&one.repeat(MAX_PROBES + 1)).unwrap_err();
        assert!(many[0].contains("the list has 33 items, more than the limit of 32"));
        let assertion = "{fieldValue: {fieldPath: /a, value: b}}, ";
        let list = assertion.repeat(MAX_ASSERTIONS + 1);
        let many = parsed(&format!(
            "- {{selector: {{kind: Pod}}, assertions: [{list}]}}\n"
        ));
        assert!(many.unwrap_err()[0].contains("the list has 9 items, more than the limit of 8"));
        let long = one.replace("value: b", &format!("value: {}", "b".repeat(1000)));
        let large = parsed(&long.repeat(17)).unwrap_err();
        assert!(
            large[0].contains("more than the limit of 16384"),
            "{large:?}"
        );
    }
}
