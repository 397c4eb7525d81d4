//! Finds out whether mutating admission treats two users differently, from the answers to dry runs of the same apply.
//! Sending the dry runs is the webhook's.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::object::ObjectId;

/// Fields of `metadata` that the API server sets itself.
const SERVER_METADATA: [&str; 5] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
];
/// The most fields that one comparison collects.
const MAX_FIELDS: usize = 1_000;

/// How one field differs between two objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// Both have it, with different values.
    Value,
    /// Only one of them has it.
    Presence,
}

/// Returns the paths of the fields that the API server sets differently for the installer than for the requester, in order; never values.
///
/// `requester` and `again` are two answers to the requester. A field that both answers have with different values is chosen anew at each request, such as
/// the address of a Service, and does not count. `status` and what the API server sets in `metadata` do not count either.
pub fn user_dependent_fields(requester: &Value, installer: &Value, again: &Value) -> Vec<String> {
    let chosen_anew = differences(requester, again);
    differences(requester, installer)
        .into_iter()
        .filter(|(path, difference)| {
            *difference == Difference::Presence || chosen_anew.get(path) != Some(&Difference::Value)
        })
        .map(|(path, _)| path)
        .collect()
}

/// Returns whether two answers agree in all fields that count for [`user_dependent_fields`].
pub fn same_fields(a: &Value, b: &Value) -> bool {
    differences(a, b).is_empty()
}

fn differences(a: &Value, b: &Value) -> BTreeMap<String, Difference> {
    let mut found = BTreeMap::new();
    compare(
        &without_server_fields(a),
        &without_server_fields(b),
        "",
        &mut found,
    );
    found
}

fn without_server_fields(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|name, _| !SERVER_METADATA.contains(&name.as_str()));
        }
    }
    object
}

fn compare(a: &Value, b: &Value, path: &str, found: &mut BTreeMap<String, Difference>) {
    if found.len() >= MAX_FIELDS || a == b {
        return;
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            for (name, value) in a {
                let path = member(path, name);
                match b.get(name) {
                    Some(other) => compare(value, other, &path, found),
                    None => {
                        found.insert(path, Difference::Presence);
                    }
                }
            }
            for name in b.keys().filter(|name| !a.contains_key(*name)) {
                found.insert(member(path, name), Difference::Presence);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                let path = format!("{path}[{index}]");
                match (a.get(index), b.get(index)) {
                    (Some(a), Some(b)) => compare(a, b, &path, found),
                    _ => {
                        found.insert(path, Difference::Presence);
                    }
                }
            }
        }
        _ => {
            found.insert(path.to_owned(), Difference::Value);
        }
    }
}

fn member(path: &str, name: &str) -> String {
    let plain = name
        .chars()
        .all(|letter| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_');
    match (path.is_empty(), plain) {
        (true, _) => name.to_owned(),
        (false, true) => format!("{path}.{name}"),
        (false, false) => format!("{path}[{name:?}]"),
    }
}

/// The kinds that mutating webhooks and policies of a cluster are registered for.
///
/// Selectors and match conditions are ignored, so that it may name more kinds than are changed, and never fewer. Plugins that are compiled into an API server
/// are not registered anywhere and not covered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MutatedKinds {
    /// API groups and resources of each rule.
    rules: Vec<(Vec<String>, Vec<String>)>,
    everything: bool,
}

impl MutatedKinds {
    /// Returns the value for a cluster whose registrations are not known: every kind may be changed.
    pub fn unknown() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Adds a `MutatingWebhookConfiguration` or a `MutatingAdmissionPolicy`. One that names no rules counts for every kind.
    pub fn add(&mut self, registration: &Value) {
        let strings = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut add = |rules: &Value| match rules.as_array() {
            Some(rules) => self.rules.extend(
                rules
                    .iter()
                    .map(|rule| (strings(&rule["apiGroups"]), strings(&rule["resources"]))),
            ),
            None => self.everything = true,
        };
        match registration["webhooks"].as_array() {
            Some(webhooks) => webhooks.iter().for_each(|webhook| add(&webhook["rules"])),
            None if registration["kind"] == "MutatingWebhookConfiguration" => {}
            None => add(&registration["spec"]["matchConstraints"]["resourceRules"]),
        }
    }

    /// Returns whether objects of this kind may be changed. Policies also match a kind by equivalent API groups, so that only the resource decides.
    ///
    /// A rule for all subresources is also one for the resource itself. Source: `Matcher.resource` of `k8s.io/apiserver`
    /// `pkg/admission/plugin/webhook/predicates/rules`.
    pub fn contains(&self, group: &str, resource: &str) -> bool {
        let names = |list: &[String], name: &str| list.iter().any(|found| found == name);
        self.everything
            || self.rules.iter().any(|(groups, resources)| {
                let matches = |name: &str| {
                    resources
                        .iter()
                        .any(|found| found.strip_suffix("/*").unwrap_or(found) == name)
                };
                let equivalent = matches(resource);
                let all = matches("*");
                equivalent || (all && (names(groups, "*") || names(groups, group)))
            })
    }
}

/// Returns whether the API server records the requester in objects of this kind, so that they differ by requester in any case. A right of its own is asked
/// for these ([`super::made_as`]).
pub fn records_requester(id: &ObjectId) -> bool {
    super::made_as([id], ("", "")).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_that_depend_on_the_user_are_named_without_values() {
        let with = |labels: Value, spec: Value| {
            json!({
                "kind": "Pod", "metadata": {"name": "a", "uid": "u", "labels": labels, "resourceVersion": "1"}, "spec": spec, "status": {"phase": "x"},
            })
        };
        let requester = with(
            json!({"team": "a", "example.com/x": "1"}),
            json!({"nodeSelector": {"pool": "tenants"}, "list": [1, 2]}),
        );
        let mut installer = with(json!({"team": "a"}), json!({"list": [1, 3, 4]}));
        installer["metadata"]["uid"] = json!("v");
        installer["metadata"]["resourceVersion"] = json!("7");
        installer["status"] = Value::Null;
        assert_eq!(
            user_dependent_fields(&requester, &installer, &requester),
            [
                "metadata.labels[\"example.com/x\"]",
                "spec.list[1]",
                "spec.list[2]",
                "spec.nodeSelector",
            ]
        );
        assert!(!same_fields(&requester, &installer) && same_fields(&requester, &requester));
    }

    #[test]
    fn a_value_that_is_chosen_anew_each_time_does_not_count_and_a_missing_one_does() {
        let with = |address: &str| json!({"spec": {"clusterIP": address}});
        let (one, two, three) = (with("10.0.0.1"), with("10.0.0.2"), with("10.0.0.3"));
        assert_eq!(user_dependent_fields(&one, &two, &three), [""; 0]);
        let none = json!({"spec": {}});
        assert_eq!(
            user_dependent_fields(&one, &none, &three),
            ["spec.clusterIP"]
        );
        assert_eq!(
            user_dependent_fields(&none, &two, &none),
            ["spec.clusterIP"]
        );
    }

    #[test]
    fn fields_beyond_the_limit_are_cut_and_never_count_as_none() {
        let many = |value: u32| {
            let fields: serde_json::Map<_, _> = (0..3_000)
                .map(|n| (format!("f{n}"), json!(value)))
                .collect();
            json!({"data": fields})
        };
        assert_eq!(
            user_dependent_fields(&many(1), &many(2), &many(1)).len(),
            MAX_FIELDS
        );
    }

    #[test]
    fn kinds_are_mutated_by_what_is_registered_for_them() {
        let webhook = json!({"kind": "MutatingWebhookConfiguration", "webhooks": [
            {"rules": [{"apiGroups": ["core.rukpak.io"], "resources": ["bundles"]}]},
            {"rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec", "secrets/*", "services/status"]}]},
            {"rules": [{"apiGroups": ["policy"], "resources": ["*/*"]}, {"apiGroups": ["batch"], "resources": ["*/status"]}]},
        ]});
        let policy = json!({"kind": "MutatingAdmissionPolicy", "spec": {"matchConstraints": {"resourceRules": [
            {"apiGroups": ["apps"], "resources": ["*"]},
        ]}}});
        let mut kinds = MutatedKinds::default();
        kinds.add(&webhook);
        kinds.add(&policy);
        for (group, resource, expected) in [
            ("", "pods", true),
            ("apps", "deployments", true),
            ("", "configmaps", false),
            ("", "secrets", true),
            ("", "services", false),
            ("policy", "poddisruptionbudgets", true),
            ("core.rukpak.io", "bundles", true),
            ("batch", "jobs", false),
        ] {
            assert_eq!(
                kinds.contains(group, resource),
                expected,
                "{group} {resource}"
            );
        }
        kinds.add(&json!({"kind": "MutatingWebhookConfiguration"}));
        assert!(!kinds.contains("batch", "jobs"));
        kinds.add(&json!({"kind": "MutatingAdmissionPolicy", "spec": {}}));
        assert!(kinds.contains("batch", "jobs"));
        assert!(MutatedKinds::unknown().contains("", "configmaps"));
    }

    #[test]
    fn objects_that_record_their_requester_are_known() {
        let id = |group: &str, kind: &str| ObjectId {
            group: group.to_owned(),
            version: "v1".to_owned(),
            kind: kind.to_owned(),
            namespace: None,
            name: "a".to_owned(),
        };
        assert!(records_requester(&id(
            "certificates.k8s.io",
            "CertificateSigningRequest"
        )));
        assert!(records_requester(&id("core.rukpak.io", "BundleDeployment")));
        assert!(!records_requester(&id("", "ConfigMap")));
    }
}
