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

    /// Returns true if both objects have this field, with different values.
    fn has_other_value(&self, path: &str) -> bool {
        self.fields.get(path) == Some(&Difference::Value)
    }

    /// Returns true if the field, which the first object has, is the same in both objects. Returns
    /// false if this is unknown because of the limits.
    fn is_equal(&self, path: &str) -> bool {
        let is_inside = |inner: &str, outer: &str| {
            let rest = inner.strip_prefix(outer);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut found = self.fields.keys();
        !self.is_full() && !found.any(|found| is_inside(found, path) || is_inside(path, found))
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

/// The responses to two dry runs of the same apply as one user.
#[derive(Debug, Clone, Copy)]
pub struct DryRunPair<'a> {
    /// Response to the first dry run.
    pub first: &'a DryRunObject,
    /// Response to the second dry run; `None` if only one was sent.
    pub again: Option<&'a DryRunObject>,
}

impl DryRunPair<'_> {
    /// Returns the differences between both responses. There are none without a second response.
    fn changes(self) -> Differences {
        self.again.map_or_else(Differences::default, |again| {
            Differences::between(self.first, again)
        })
    }
}

/// Returns the paths of the fields that the API server sets differently for the installing
/// ServiceAccount than for the requester, in order, without values.
///
/// A field that has another value in each response is random, such as the address of a Service, and
/// is ignored. Two responses for the requester do not prove that a field is random, because a value
/// for this user can contain a random part. Therefore the field must also satisfy one of these
/// conditions:
/// - It has different values in both responses for the installer.
/// - It has the same value in the second response for the requester and in a response for the
///   installer. The time of day is an example.
///
/// Without second responses, every difference is returned.
pub fn user_dependent_fields(requester: DryRunPair<'_>, installer: DryRunPair<'_>) -> Vec<String> {
    let found = Differences::between(requester.first, installer.first);
    if found.fields.is_empty() {
        return Vec::new();
    }
    let is_full = found.is_full();
    let of_requester = requester.changes();
    let of_installer = installer.changes();
    let between_both: Vec<Differences> = requester.again.map_or_else(Vec::new, |again| {
        let installers = [Some(installer.first), installer.again];
        let installers = installers.into_iter().flatten();
        installers
            .map(|installer| Differences::between(again, installer))
            .collect()
    });
    let is_random = |path: &str| {
        of_requester.has_other_value(path)
            && (of_installer.has_other_value(path)
                || between_both.iter().any(|found| found.is_equal(path)))
    };
    let mut fields: Vec<String> = found
        .fields
        .into_iter()
        .filter(|(path, difference)| *difference == Difference::Presence || !is_random(path))
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
mod tests;
