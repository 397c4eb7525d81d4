//! Compares the responses to dry runs of the same apply by two users, to find out if mutating
//! admission treats them differently. The webhook sends the dry runs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::answer::DryRunObject;
use crate::object::ObjectId;
use crate::version::apis;

/// Maximum number of fields that one comparison returns.
const MAX_FIELDS: usize = 1_000;
/// Maximum total length of the paths of the returned fields, except the last path, in bytes.
const MAX_PATHS: usize = 256 << 10;

/// Difference of one field between two objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// Both objects have the field, with different values.
    Value,
    /// Only one of the objects has the field.
    Presence,
}

/// Differences by path, up to the limits.
#[derive(Debug, Default)]
struct Differences {
    fields: BTreeMap<String, Difference>,
    bytes: usize,
}

impl Differences {
    fn between(a: &DryRunObject, b: &DryRunObject) -> Self {
        let mut found = Self::default();
        found.compare_maps(&a.metadata, &b.metadata, "metadata");
        found.compare_maps(&a.fields, &b.fields, "");
        found
    }

    fn is_full(&self) -> bool {
        self.fields.len() >= MAX_FIELDS || self.bytes >= MAX_PATHS
    }

    fn add(&mut self, path: String, difference: Difference) {
        if !self.is_full() {
            self.bytes += path.len();
            self.fields.insert(path, difference);
        }
    }

    fn compare(&mut self, a: &Value, b: &Value, path: String) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => self.compare_maps(a, b, &path),
            (Value::Array(a), Value::Array(b)) => {
                for index in 0..a.len().max(b.len()) {
                    let (a, b) = (a.get(index), b.get(index));
                    if a != b {
                        self.compare_field(a, b, format!("{path}[{index}]"));
                    }
                    if self.is_full() {
                        return;
                    }
                }
            }
            _ => self.add(path, Difference::Value),
        }
    }

    fn compare_maps(&mut self, a: &Map<String, Value>, b: &Map<String, Value>, path: &str) {
        let added = b.keys().filter(|name| !a.contains_key(*name));
        for name in a.keys().chain(added) {
            let (a, b) = (a.get(name), b.get(name));
            if a != b {
                self.compare_field(a, b, member(path, name));
            }
            if self.is_full() {
                return;
            }
        }
    }

    fn compare_field(&mut self, a: Option<&Value>, b: Option<&Value>, path: String) {
        match (a, b) {
            (Some(a), Some(b)) => self.compare(a, b, path),
            _ => self.add(path, Difference::Presence),
        }
    }
}

/// Returns the paths of the fields that the API server sets differently for the installing
/// ServiceAccount than for the requester, in order, without values.
///
/// `requester` and `again` are two responses to the same dry run as the requester. A field that
/// differs between them is random, such as the address of a Service, and is ignored. Without a
/// second response every difference is returned.
pub fn user_dependent_fields(
    requester: &DryRunObject,
    installer: &DryRunObject,
    again: Option<&DryRunObject>,
) -> Vec<String> {
    let found = Differences::between(requester, installer);
    if found.fields.is_empty() {
        return Vec::new();
    }
    let is_full = found.is_full();
    let chosen_anew = again.map(|again| Differences::between(requester, again).fields);
    let chosen_anew = chosen_anew.unwrap_or_default();
    let mut fields: Vec<String> = found
        .fields
        .into_iter()
        .filter(|(path, difference)| {
            *difference == Difference::Presence || chosen_anew.get(path) != Some(&Difference::Value)
        })
        .map(|(path, _)| path)
        .collect();
    if fields.is_empty() && is_full {
        fields.push("more fields than the limit of the comparison".to_owned());
    }
    fields
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

/// Kinds for which mutating webhooks and policies of a cluster are registered.
///
/// Selectors and match conditions are ignored, so the set may be too large, but never too small.
/// Admission plugins that are compiled into an API server have no registration and are not
/// included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MutatedKinds {
    /// API groups and resources of each rule.
    rules: Vec<(Vec<String>, Vec<String>)>,
    everything: bool,
}

impl MutatedKinds {
    /// Returns the value for a cluster with unknown registrations: every kind may be mutated.
    pub fn unknown() -> Self {
        Self {
            everything: true,
            ..Self::default()
        }
    }

    /// Adds a `MutatingWebhookConfiguration` or a `MutatingAdmissionPolicy`. A configuration
    /// without rules adds every kind.
    pub fn add(&mut self, registration: &Value) {
        let strings = |list: &Value| -> Vec<String> {
            let list = list.as_array().into_iter().flatten();
            list.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let mut add = |rules: &Value| {
            let Some(rules) = rules.as_array() else {
                self.everything = true;
                return;
            };
            for rule in rules {
                let (groups, resources) =
                    (strings(&rule["apiGroups"]), strings(&rule["resources"]));
                self.everything |= groups.is_empty() || resources.is_empty();
                self.rules.push((groups, resources));
            }
        };
        match registration["webhooks"].as_array() {
            Some(webhooks) => webhooks.iter().for_each(|webhook| add(&webhook["rules"])),
            None if registration["kind"] == "MutatingWebhookConfiguration" => {}
            None => add(&registration["spec"]["matchConstraints"]["resourceRules"]),
        }
    }

    /// Returns `true` if objects of this kind may be mutated.
    ///
    /// With `matchPolicy: Equivalent`, the default, a rule also matches requests of other groups
    /// and versions that store the same objects under the same resource name. Therefore:
    /// - Versions and `matchPolicy` are ignored.
    /// - A rule that names the resource matches every group.
    /// - A rule for all resources of a built-in group matches all built-in groups (Ingress is in
    ///   `extensions` and `networking.k8s.io`). For another group, the rule matches only this
    ///   group, because a CustomResourceDefinition has one group.
    ///
    /// A rule for all subresources also matches the resource itself. Sources: `Matcher.resource`
    /// and `EquivalentResourceRegistry` of `k8s.io/apiserver`.
    pub fn contains(&self, group: &str, resource: &str) -> bool {
        self.everything
            || self.rules.iter().any(|(groups, resources)| {
                let matches = |name: &str| {
                    resources
                        .iter()
                        .any(|found| found.strip_suffix("/*").unwrap_or(found) == name)
                };
                let equivalent = matches(resource);
                let all = matches("*");
                let is_equivalent = |found: &String| {
                    found == "*"
                        || found == group
                        || (apis::may_be_built_in(found) && apis::may_be_built_in(group))
                };
                equivalent || (all && groups.iter().any(is_equivalent))
            })
    }
}

/// Returns `true` if the API server records the requester in objects of this kind, so that these
/// objects always depend on the requester. [`super::creator_permission`] returns the permission
/// that such objects require.
pub fn records_requester(id: &ObjectId) -> bool {
    super::creator_permission([id], ("", "")).is_some()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fields(requester: &Value, installer: &Value, again: &Value) -> Vec<String> {
        let read = |value: &Value| DryRunObject::parse(value.to_string().as_bytes()).unwrap();
        user_dependent_fields(&read(requester), &read(installer), Some(&read(again)))
    }

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
            fields(&requester, &installer, &requester),
            [
                "metadata.labels[\"example.com/x\"]",
                "spec.list[1]",
                "spec.list[2]",
                "spec.nodeSelector",
            ]
        );
        assert_eq!(fields(&requester, &requester, &installer), [""; 0]);
        let read = |value: &Value| DryRunObject::parse(value.to_string().as_bytes()).unwrap();
        let first = user_dependent_fields(&read(&requester), &read(&installer), None);
        assert_eq!(first.len(), 4);
    }

    #[test]
    fn random_values_are_ignored_and_missing_fields_are_reported() {
        let with = |address: &str| json!({"spec": {"clusterIP": address}});
        let (one, two, three) = (with("10.0.0.1"), with("10.0.0.2"), with("10.0.0.3"));
        assert_eq!(fields(&one, &two, &three), [""; 0]);
        let none = json!({"spec": {}});
        assert_eq!(fields(&one, &none, &three), ["spec.clusterIP"]);
        assert_eq!(fields(&none, &two, &none), ["spec.clusterIP"]);
    }

    #[test]
    fn fields_beyond_the_limit_are_cut_and_never_count_as_none() {
        let many = |value: u32| {
            let fields: serde_json::Map<_, _> = (0..3_000)
                .map(|n| (format!("f{n}"), json!(value)))
                .collect();
            json!({"data": fields})
        };
        assert_eq!(fields(&many(1), &many(2), &many(1)).len(), MAX_FIELDS);
        // Fields beyond the limit are not reported as differences.
        assert_eq!(fields(&many(1), &many(2), &many(3)).len(), 1);
        let long = |value: u32| {
            let inner: serde_json::Map<_, _> =
                (0..100).map(|n| (format!("f{n}"), json!(value))).collect();
            json!({"data": {"x".repeat(1 << 20): inner}})
        };
        assert_eq!(fields(&long(1), &long(2), &long(1)).len(), 1);
    }

    #[test]
    fn kinds_are_mutated_by_what_is_registered_for_them() {
        let webhook = json!({"kind": "MutatingWebhookConfiguration", "webhooks": [
            {"rules": [{"apiGroups": ["core.rukpak.io"], "resources": ["bundles"]}]},
            {"rules": [{"apiGroups": [""], "resources": ["pods", "pods/exec", "secrets/*", "services/status"]}]},
            {"rules": [{"apiGroups": ["policy.example.com"], "resources": ["*/*"]}, {"apiGroups": ["batch"], "resources": ["*/status"]}]},
        ]});
        let policy = json!({"kind": "MutatingAdmissionPolicy", "spec": {"matchConstraints": {"resourceRules": [
            {"apiGroups": ["apps.example.com"], "resources": ["*"]},
        ]}}});
        let mut kinds = MutatedKinds::default();
        kinds.add(&webhook);
        kinds.add(&policy);
        for (group, resource, expected) in [
            ("", "pods", true),
            ("apps.example.com", "deployments", true),
            ("", "configmaps", false),
            ("", "secrets", true),
            ("", "services", false),
            ("policy.example.com", "poddisruptionbudgets", true),
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
    fn rules_count_for_groups_that_may_be_equivalent() {
        for (groups, resources, group, resource, expected) in [
            // A rule that names the resource matches every group.
            (
                &["extensions"][..],
                &["deployments"][..],
                "apps",
                "deployments",
                true,
            ),
            (&[""], &["events"], "events.k8s.io", "events", true),
            (&["a.example.com"], &["webs"], "b.example.com", "webs", true),
            (
                &["extensions"],
                &["deployments/scale"],
                "apps",
                "deployments",
                false,
            ),
            // A rule for all resources of a built-in group matches all built-in groups.
            (&["extensions"], &["*"], "apps", "deployments", true),
            (
                &["extensions"],
                &["*/*"],
                "networking.k8s.io",
                "ingresses",
                true,
            ),
            (&[""], &["*"], "events.k8s.io", "events", true),
            (&["events.k8s.io"], &["*"], "", "events", true),
            // A later Kubernetes may have a group that this release does not know.
            (&["later.k8s.io"], &["*"], "apps", "deployments", true),
            (&["extensions"], &["*/scale"], "apps", "deployments", false),
            // Custom resources have one group.
            (&["extensions"], &["*"], "a.example.com", "webs", false),
            (&["a.example.com"], &["*"], "a.example.com", "webs", true),
            (&["a.example.com"], &["*"], "b.example.com", "webs", false),
            (&["a.example.com"], &["*"], "apps", "deployments", false),
            // A rule for all groups and resources.
            (&["*"], &["*"], "a.example.com", "webs", true),
            (&["*"], &["pods"], "apps", "deployments", false),
            (
                &["a.example.com", "*"],
                &["pods", "*"],
                "apps",
                "deployments",
                true,
            ),
            // Invalid rules match every kind.
            (&[], &["pods"], "apps", "deployments", true),
            (&[""], &[], "apps", "deployments", true),
        ] {
            for policy in ["Equivalent", "Exact"] {
                let rule = json!({"apiGroups": groups, "apiVersions": ["v1beta1"], "resources": resources});
                let mut kinds = MutatedKinds::default();
                kinds.add(
                    &json!({"kind": "MutatingWebhookConfiguration", "webhooks": [
                        {"matchPolicy": policy, "rules": [rule]},
                    ]}),
                );
                let mut policies = MutatedKinds::default();
                policies.add(&json!({"kind": "MutatingAdmissionPolicy", "spec": {
                    "matchConstraints": {"matchPolicy": policy, "resourceRules": [rule]},
                }}));
                assert_eq!(kinds, policies);
                assert_eq!(
                    kinds.contains(group, resource),
                    expected,
                    "{groups:?} {resources:?}: {group} {resource}"
                );
            }
        }
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
