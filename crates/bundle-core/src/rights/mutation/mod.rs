//! Compares the responses to dry runs of the same apply by two users, to find out if mutating
//! admission treats them differently. The webhook sends the dry runs.

use serde_json::{Map, Value};

use super::answer::{DryRunObject, METADATA};
use crate::json;
use crate::object::ObjectId;
use crate::version::apis;

/// Maximum number of fields that one comparison returns.
const MAX_FIELDS: usize = 1_000;
/// Maximum memory of all paths that one comparison returns, in bytes.
const MAX_PATHS: usize = 512 << 10;
/// Memory of one step of a path without its name, in bytes.
const STEP_OVERHEAD: usize = 48;

/// Another user or controller wrote the object between two dry runs, so that their responses cannot
/// be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the object changed during the comparison")]
pub struct ObjectChanged;

/// Comparison of the responses to dry runs of the same apply as the requester and as the installing
/// ServiceAccount. The comparison contains the paths of the fields that differ in the first
/// responses, and digests of their values. Therefore the caller does not need to keep the
/// responses.
#[derive(Debug)]
pub struct DryRunComparison {
    fields: Vec<DifferentField>,
    /// True if further fields differ, beyond the limits.
    is_full: bool,
    /// The resourceVersion of all responses; `None` if the apply creates the object.
    version: Option<String>,
}

/// Field that differs between the first responses.
#[derive(Debug)]
struct DifferentField {
    path: Vec<PathStep>,
    difference: Difference,
    requester: FieldValues,
    installer: FieldValues,
}

/// Step of a path from a value to one of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathStep {
    Field(String),
    Item(usize),
}

/// Difference of one field between two objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// Both objects have the field, with different values.
    Value,
    /// Only one of the objects has the field.
    Presence,
}

/// Values of one field in the responses for one user. A value is `None` if the response lacks the
/// field, or if there is no second response.
#[derive(Debug, Clone, Copy)]
struct FieldValues {
    first: Option<ValueDigest>,
    second: Option<ValueDigest>,
}

/// Type and digest of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ValueDigest {
    value_type: ValueType,
    digest: [u8; 32],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueType {
    Scalar,
    List,
    Map,
}

impl DryRunComparison {
    /// Compares the first responses. If the object `exists`, both responses must have the same
    /// resourceVersion.
    pub fn new(
        exists: bool,
        requester: &DryRunObject,
        installer: &DryRunObject,
    ) -> Result<Self, ObjectChanged> {
        let version = requester.version().filter(|_| exists);
        if exists && (version.is_none() || version != installer.version()) {
            return Err(ObjectChanged);
        }
        let Differences {
            fields, is_full, ..
        } = Differences::between(
            [&requester.metadata, &installer.metadata],
            [&requester.fields, &installer.fields],
        );
        let fields = fields.into_iter().map(|(path, difference)| {
            let first = |object| FieldValues {
                first: ValueDigest::of(&path, object),
                second: None,
            };
            DifferentField {
                requester: first(requester),
                installer: first(installer),
                path,
                difference,
            }
        });
        Ok(Self {
            fields: fields.collect(),
            is_full,
            version: version.map(str::to_owned),
        })
    }

    /// Adds the second response for the requester.
    pub fn add_requester(&mut self, second: &DryRunObject) -> Result<(), ObjectChanged> {
        self.check_version(second)?;
        for field in &mut self.fields {
            field.requester.second = ValueDigest::of(&field.path, second);
        }
        Ok(())
    }

    /// Adds the second response for the installing ServiceAccount.
    pub fn add_installer(&mut self, second: &DryRunObject) -> Result<(), ObjectChanged> {
        self.check_version(second)?;
        for field in &mut self.fields {
            field.installer.second = ValueDigest::of(&field.path, second);
        }
        Ok(())
    }

    fn check_version(&self, second: &DryRunObject) -> Result<(), ObjectChanged> {
        match self.version.as_deref() {
            Some(version) if second.version() != Some(version) => Err(ObjectChanged),
            _ => Ok(()),
        }
    }

    /// Returns true if a field has different values in both responses for the requester. Otherwise
    /// a second response for the installing ServiceAccount does not change the result.
    pub fn varies_for_requester(&self) -> bool {
        self.fields.iter().any(|field| field.requester.differ())
    }

    /// Returns the paths of the fields that the API server sets differently for the installing
    /// ServiceAccount than for the requester, in order, without values.
    ///
    /// A field that has a different value in each response is random, such as the address of a
    /// Service, and is ignored. Two responses for the requester do not prove that a field is
    /// random, because a value for this user can contain a random part. Therefore the field must
    /// also satisfy one of these conditions:
    /// - It has different values in both responses for the installer.
    /// - It has the same value in the second response for the requester and in a response for the
    ///   installer. For example, the field contains the time of day.
    ///
    /// Without second responses, every difference is returned.
    pub fn user_dependent_fields(&self) -> Vec<String> {
        let fields = self.fields.iter().filter(|field| !field.is_random());
        texts(fields.map(|field| &field.path[..]), self.is_full)
    }
}

impl DifferentField {
    fn is_random(&self) -> bool {
        let of_installer = [self.installer.first, self.installer.second];
        self.difference == Difference::Value
            && self.requester.differ()
            && (self.installer.differ() || of_installer.contains(&self.requester.second))
    }
}

impl FieldValues {
    /// Returns true if both responses have the field, with different values. Returns false for two
    /// maps or two lists, because only their parts differ.
    fn differ(self) -> bool {
        let (Some(first), Some(second)) = (self.first, self.second) else {
            return false;
        };
        let is_same_container =
            first.value_type == second.value_type && first.value_type != ValueType::Scalar;
        first != second && !is_same_container
    }
}

impl ValueDigest {
    /// Returns the digest of the value of a field, or `None` if `object` lacks the field.
    fn of(path: &[PathStep], object: &DryRunObject) -> Option<Self> {
        let value = value_at(path, object)?;
        let value_type = match value {
            Value::Object(_) => ValueType::Map,
            Value::Array(_) => ValueType::List,
            _ => ValueType::Scalar,
        };
        Some(Self {
            value_type,
            digest: json::sha256(value),
        })
    }
}

impl PathStep {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Field(name) => Some(name),
            Self::Item(_) => None,
        }
    }
}

fn value_at<'o>(path: &[PathStep], object: &'o DryRunObject) -> Option<&'o Value> {
    let mut steps = path.iter();
    let mut value = match steps.next()?.name()? {
        METADATA => object.metadata.get(steps.next()?.name()?)?,
        name => object.fields.get(name)?,
    };
    for step in steps {
        value = match step {
            PathStep::Field(name) => value.as_object()?.get(name)?,
            PathStep::Item(index) => value.as_array()?.get(*index)?,
        };
    }
    Some(value)
}

/// Returns the paths as texts, in order. If `is_full` is true, the result is never empty.
fn texts<'p>(paths: impl Iterator<Item = &'p [PathStep]>, is_full: bool) -> Vec<String> {
    let mut texts: Vec<String> = paths.map(path_text).collect();
    texts.sort_unstable();
    if texts.is_empty() && is_full {
        texts.push("more fields than the limit of the comparison".to_owned());
    }
    texts
}

fn path_text(path: &[PathStep]) -> String {
    path.iter().fold(String::new(), |text, step| match step {
        PathStep::Field(name) => member(&text, name),
        PathStep::Item(index) => format!("{text}[{index}]"),
    })
}

/// Paths of the fields that differ between two objects, up to the limits.
#[derive(Debug, Default)]
struct Differences {
    fields: Vec<(Vec<PathStep>, Difference)>,
    bytes: usize,
    is_full: bool,
    /// Path of the values that are compared now.
    path: Vec<PathStep>,
}

impl Differences {
    /// Compares `metadata` and the other fields of two objects.
    fn between(metadata: [&Map<String, Value>; 2], fields: [&Map<String, Value>; 2]) -> Self {
        let mut found = Self::default();
        found.path.push(PathStep::Field(METADATA.to_owned()));
        found.compare_maps(metadata[0], metadata[1]);
        found.path.clear();
        found.compare_maps(fields[0], fields[1]);
        found
    }

    /// Adds the current path.
    fn add(&mut self, difference: Difference) {
        let names = self.path.iter().filter_map(PathStep::name).map(str::len);
        let bytes = names.sum::<usize>() + self.path.len() * STEP_OVERHEAD;
        if self.bytes + bytes > MAX_PATHS {
            self.is_full = true;
            return;
        }
        self.bytes += bytes;
        self.fields.push((self.path.clone(), difference));
        self.is_full = self.fields.len() >= MAX_FIELDS;
    }

    fn compare(&mut self, a: &Value, b: &Value) {
        match (a, b) {
            (Value::Object(a), Value::Object(b)) => self.compare_maps(a, b),
            (Value::Array(a), Value::Array(b)) => {
                for index in 0..a.len().max(b.len()) {
                    self.compare_field(a.get(index), b.get(index), || PathStep::Item(index));
                }
            }
            _ => self.add(Difference::Value),
        }
    }

    fn compare_maps(&mut self, a: &Map<String, Value>, b: &Map<String, Value>) {
        let added = b.keys().filter(|name| !a.contains_key(*name));
        for name in a.keys().chain(added) {
            self.compare_field(a.get(name), b.get(name), || PathStep::Field(name.clone()));
        }
    }

    fn compare_field(
        &mut self,
        a: Option<&Value>,
        b: Option<&Value>,
        step: impl FnOnce() -> PathStep,
    ) {
        if self.is_full {
            return;
        }
        // Lists and maps are compared only by their members. Otherwise deeply nested values would
        // be compared once for each level.
        let is_equal = match (a, b) {
            (Some(Value::Object(_)), Some(Value::Object(_)))
            | (Some(Value::Array(_)), Some(Value::Array(_))) => false,
            _ => a == b,
        };
        if is_equal {
            return;
        }
        self.path.push(step());
        match (a, b) {
            (Some(a), Some(b)) => self.compare(a, b),
            _ => self.add(Difference::Presence),
        }
        self.path.pop();
    }
}

/// Labels and annotations that a patch removes.
#[derive(Debug, Clone, Copy)]
pub struct RemovedMetadata<'a> {
    /// Names of the labels.
    pub labels: &'a [&'a str],
    /// Names of the annotations.
    pub annotations: &'a [&'a str],
}

impl RemovedMetadata<'_> {
    /// No labels and no annotations.
    const NONE: Self = Self {
        labels: &[],
        annotations: &[],
    };

    /// Returns `metadata` without these labels and annotations. An empty map is removed too.
    fn remaining(self, metadata: &Map<String, Value>) -> Map<String, Value> {
        let mut metadata = metadata.clone();
        for (field, names) in [("labels", self.labels), ("annotations", self.annotations)] {
            if let Some(Value::Object(entries)) = metadata.get_mut(field) {
                entries.retain(|name, _| !names.contains(&name.as_str()));
                if entries.is_empty() {
                    metadata.remove(field);
                }
            }
        }
        metadata
    }
}

/// Returns the unexpected changes of a patch that removes the labels and annotations in `removed`.
/// The result has the paths of all other changed fields, in order, without values. It also has the
/// labels and annotations in `removed` that still exist after the patch. `before` is the object
/// before the patch, and `after` is the response to its dry run.
pub fn unexpected_changes(
    before: &DryRunObject,
    after: &DryRunObject,
    removed: RemovedMetadata<'_>,
) -> Vec<String> {
    let expected = removed.remaining(&before.metadata);
    let result = RemovedMetadata::NONE.remaining(&after.metadata);
    let found = Differences::between([&expected, &result], [&before.fields, &after.fields]);
    let paths = found.fields.iter().map(|(path, _)| &path[..]);
    texts(paths, found.is_full)
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
