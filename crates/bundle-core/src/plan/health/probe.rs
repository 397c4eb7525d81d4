//! Health of objects that a probe of `bundle.yaml` selects.

use serde_json::Value;

use super::{Health, health, rules};
use crate::object::GroupKind;
use crate::package::{Assertion, Probe};
use crate::text::{bounded, visible};
use crate::version::apis;

/// Maximum length of the value of a field in a message, in bytes.
const MAX_VALUE: usize = 100;
/// Maximum length of a condition message that is quoted in a message, in bytes.
const MAX_MESSAGE: usize = 512;

/// Returns true if one of `probes` selects the object with this kind, namespace and name.
pub fn has_probe(probes: &[Probe], kind: &GroupKind, namespace: Option<&str>, name: &str) -> bool {
    let mut selectors = probes.iter().map(|probe| &probe.selector);
    selectors.any(|selector| selector.selects(kind, namespace, name))
}

/// Returns the health of `object` by the probes that select it and by the rules of its kind. For a
/// custom resource, the probes replace the rules of its kind, except the rules about
/// `observedGeneration` and about deletion. Without a matching probe, the function returns the
/// result of [`health`].
pub fn probed_health(
    kind: &GroupKind,
    (namespace, name): (Option<&str>, &str),
    object: &Value,
    probes: &[Probe],
) -> Health {
    let selected: Vec<&Probe> = probes
        .iter()
        .filter(|probe| probe.selector.selects(kind, namespace, name))
        .collect();
    let is_replaced = !selected.is_empty() && apis::is_custom(&kind.group);
    let is_deleted = object.pointer("/metadata/deletionTimestamp").is_some();
    let built_in = match rules::unobserved(object) {
        Some(waiting) if is_replaced && !is_deleted => waiting,
        None if is_replaced && !is_deleted => Health::Ready,
        _ => health(&kind.group, &kind.kind, object),
    };
    if built_in != Health::Ready {
        return built_in;
    }
    let mut assertions = selected.iter().flat_map(|probe| &probe.assertions);
    match assertions.find_map(|one| unmet(one, object)) {
        Some(why) => Health::Waiting(format!("probe: {why}")),
        None => Health::Ready,
    }
}

/// Returns the reason why the object does not meet the assertion; `None` if the object meets the
/// assertion.
fn unmet(assertion: &Assertion, object: &Value) -> Option<String> {
    match assertion {
        Assertion::ConditionEqual { r#type, status } => unmet_condition(object, r#type, status),
        Assertion::FieldsEqual { field_a, field_b } => {
            let missing = |field: &str| format!("field {field} does not exist");
            let Some(first) = object.pointer(field_a) else {
                return Some(missing(field_a));
            };
            let Some(second) = object.pointer(field_b) else {
                return Some(missing(field_b));
            };
            (first != second).then(|| format!("fields {field_a} and {field_b} differ"))
        }
        Assertion::FieldValue { field_path, value } => match object.pointer(field_path) {
            None => Some(format!("field {field_path} does not exist")),
            Some(found) if is_equal(found, value) => None,
            Some(found) => Some(match shown(field_path, found) {
                Some(found) => format!("field {field_path} is {found}, expected {value:?}"),
                None => format!("field {field_path} is not {value:?}"),
            }),
        },
    }
}

fn unmet_condition(object: &Value, kind: &str, status: &str) -> Option<String> {
    let Some(condition) = rules::condition(object, kind) else {
        return Some(format!("condition {kind} does not exist"));
    };
    let generation = object.pointer("/metadata/generation");
    let generation = generation.and_then(Value::as_i64);
    let observed = condition["observedGeneration"].as_i64();
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        return Some(format!(
            "condition {kind} is of generation {observed} of {generation}"
        ));
    }
    if condition["status"] == status {
        return None;
    }
    let found = condition["status"].as_str().unwrap_or("not set");
    let found = bounded(&visible(found), MAX_VALUE);
    let why = rules::reason_and_message(condition);
    let why = bounded(&visible(&why), MAX_MESSAGE);
    Some(if why.is_empty() {
        format!("condition {kind} is {found}, expected {status}")
    } else {
        format!("condition {kind} is {found}, expected {status}: {why}")
    })
}

/// Returns true if a field has the value `wanted`. Numbers and booleans are compared by their JSON
/// text.
fn is_equal(found: &Value, wanted: &str) -> bool {
    match found {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        Value::Bool(value) => value.to_string() == wanted,
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Returns the value of a field for a message. Values outside of `/status` are omitted, because
/// they can be secret, and more users can read a BundleDeployment than its objects.
fn shown(field: &str, value: &Value) -> Option<String> {
    if !field.starts_with("/status/") {
        return None;
    }
    Some(match value {
        Value::String(text) => format!("{:?}", bounded(text, MAX_VALUE)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a map".to_owned(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::package::ProbeSelector;

    fn probe(group: &str, kind: &str, assertions: Vec<Assertion>) -> Probe {
        Probe {
            selector: ProbeSelector {
                group: group.to_owned(),
                kind: kind.to_owned(),
                namespace: None,
                name: None,
            },
            assertions,
        }
    }

    fn condition_equal(kind: &str, status: &str) -> Assertion {
        Assertion::ConditionEqual {
            r#type: kind.to_owned(),
            status: status.to_owned(),
        }
    }

    fn fields_equal(first: &str, second: &str) -> Assertion {
        Assertion::FieldsEqual {
            field_a: first.to_owned(),
            field_b: second.to_owned(),
        }
    }

    fn field_value(path: &str, value: &str) -> Assertion {
        Assertion::FieldValue {
            field_path: path.to_owned(),
            value: value.to_owned(),
        }
    }

    fn result(kind: &str, object: &Value, probes: &[Probe]) -> String {
        let kind = GroupKind::parse(kind);
        match probed_health(&kind, (Some("a"), "web"), object, probes) {
            Health::Ready => "ready".to_owned(),
            Health::Waiting(why) => why,
            Health::Failed(why) => format!("failed: {why}"),
        }
    }

    #[test]
    fn assertions_decide_about_custom_resources() {
        let condition = |status: &str, more: &Value| {
            let mut condition = json!({"type": "Synced", "status": status});
            for (key, value) in more.as_object().into_iter().flatten() {
                condition[key] = value.clone();
            }
            json!({"metadata": {"generation": 2}, "status": {"conditions": [condition]}})
        };
        let synced = || condition_equal("Synced", "True");
        let phase = || field_value("/status/phase", "Running");
        let number = || field_value("/status/ready", "3");
        let equal = || fields_equal("/spec/size", "/status/size");
        let sizes = |spec: Value, status: Value| json!({"spec": {"size": spec}, "status": {"size": status}});
        for (assertion, object, expected) in [
            (synced(), condition("True", &json!({})), "ready"),
            (
                synced(),
                condition("False", &json!({})),
                "probe: condition Synced is False, expected True",
            ),
            (
                synced(),
                condition("False", &json!({"reason": "Busy", "message": "queued"})),
                "probe: condition Synced is False, expected True: Busy: queued",
            ),
            (
                synced(),
                condition("True", &json!({"observedGeneration": 1})),
                "probe: condition Synced is of generation 1 of 2",
            ),
            (
                synced(),
                json!({}),
                "probe: condition Synced does not exist",
            ),
            (phase(), json!({"status": {"phase": "Running"}}), "ready"),
            (
                phase(),
                json!({"status": {"phase": "Pending"}}),
                "probe: field /status/phase is \"Pending\", expected \"Running\"",
            ),
            (
                phase(),
                json!({"status": {"phase": ["Running"]}}),
                "probe: field /status/phase is a list, expected \"Running\"",
            ),
            (
                phase(),
                json!({}),
                "probe: field /status/phase does not exist",
            ),
            (number(), json!({"status": {"ready": 3}}), "ready"),
            (number(), json!({"status": {"ready": "3"}}), "ready"),
            (
                number(),
                json!({"status": {"ready": 2}}),
                "probe: field /status/ready is 2, expected \"3\"",
            ),
            (
                field_value("/spec/password", "a"),
                json!({"spec": {"password": "secret"}}),
                "probe: field /spec/password is not \"a\"",
            ),
            (equal(), sizes(json!(2), json!(2)), "ready"),
            (
                equal(),
                sizes(json!({"a": [1]}), json!({"a": [1]})),
                "ready",
            ),
            (
                equal(),
                sizes(json!(2), json!(1)),
                "probe: fields /spec/size and /status/size differ",
            ),
            (
                equal(),
                json!({"spec": {"size": 1}}),
                "probe: field /status/size does not exist",
            ),
        ] {
            let probes = [probe("example.com", "Widget", vec![assertion])];
            let found = result("Widget.example.com", &object, &probes);
            assert_eq!(found, expected, "{object}");
        }
    }

    #[test]
    fn probes_replace_rules_of_custom_resources_and_add_to_rules_of_other_kinds() {
        let conditions = |kind: &str, status: &str| json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        let always = || vec![field_value("/kind", "Widget")];
        let widget = |mut object: Value| {
            object["kind"] = json!("Widget");
            object
        };
        let custom = [probe("example.com", "Widget", always())];
        let pod = [probe("", "ConfigMap", vec![field_value("/data/a", "b")])];
        let claim = [probe(
            "",
            "PersistentVolumeClaim",
            vec![field_value("/status/capacity/storage", "1Gi")],
        )];
        let bound = json!({"status": {"phase": "Bound"}});
        for (kind, object, probes, expected) in [
            (
                "Widget.example.com",
                conditions("Ready", "False"),
                &[][..],
                "not Ready: ",
            ),
            (
                "Widget.example.com",
                widget(conditions("Ready", "False")),
                &custom,
                "ready",
            ),
            (
                "Widget.example.com",
                widget(conditions("Stalled", "True")),
                &custom,
                "ready",
            ),
            (
                "Widget.example.com",
                widget(json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1}})),
                &custom,
                "its controller has seen generation 1 of 2",
            ),
            (
                "Widget.example.com",
                widget(json!({"metadata": {"deletionTimestamp": "now"}})),
                &custom,
                "is being deleted",
            ),
            (
                "Other.example.com",
                conditions("Ready", "False"),
                &custom,
                "not Ready: ",
            ),
            ("ConfigMap", json!({"data": {"a": "b"}}), &pod, "ready"),
            (
                "ConfigMap",
                json!({}),
                &pod,
                "probe: field /data/a does not exist",
            ),
            (
                "PersistentVolumeClaim",
                json!({"status": {"phase": "Pending"}}),
                &claim,
                "its phase is Pending",
            ),
            (
                "PersistentVolumeClaim",
                bound,
                &claim,
                "probe: field /status/capacity/storage does not exist",
            ),
        ] {
            assert_eq!(result(kind, &object, probes), expected, "{kind} {object}");
        }
    }

    #[test]
    fn all_assertions_of_all_matching_probes_must_hold() {
        let ready = || vec![field_value("/status/a", "1")];
        let both = vec![field_value("/status/a", "1"), field_value("/status/b", "2")];
        let mut named = probe("example.com", "Widget", vec![field_value("/status/c", "3")]);
        named.selector.name = Some("web".to_owned());
        let probes = [probe("example.com", "Widget", both), named.clone()];
        let widget = |status: Value| json!({"status": status});
        for (status, expected) in [
            (json!({"a": 1}), "probe: field /status/b does not exist"),
            (
                json!({"a": 1, "b": 2}),
                "probe: field /status/c does not exist",
            ),
            (json!({"a": 1, "b": 2, "c": 3}), "ready"),
        ] {
            let found = result("Widget.example.com", &widget(status), &probes);
            assert_eq!(found, expected);
        }
        named.selector.name = Some("other".to_owned());
        let probes = [probe("example.com", "Widget", ready()), named];
        let found = result("Widget.example.com", &widget(json!({"a": 1})), &probes);
        assert_eq!(found, "ready");
        let kind = GroupKind::parse("Widget.example.com");
        assert!(has_probe(&probes, &kind, None, "web"));
        assert!(!has_probe(&probes[1..], &kind, None, "web"));
    }
}
