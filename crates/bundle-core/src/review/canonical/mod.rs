//! Comparison and digests of specs by their meaning. Absent, null and empty fields are equal, and
//! `createNamespace: false` equals an absent field. The order of keys is ignored. No function of
//! this module copies a value: specs are compared and digested in place, because copies would
//! exceed the memory that the review has reserved.

use std::io::Write;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::json::HashWriter;
use crate::reference::Digest;

/// Fields with user-defined values. Inside these values, an empty text or list is not equal to an
/// absent member.
const USER_VALUE_FIELDS: [&str; 3] = ["annotations", "config", "labels"];

/// Fields whose empty value has a meaning: an empty allowlist allows nothing.
const EMPTY_IS_NOT_ABSENT: [&str; 3] = ["hosts", "namespaces", "types"];

/// Fields for which `false` equals an absent field. An approval covers `createNamespace`, and a
/// write of its default value must not require another approval. Other boolean fields are not in
/// the list, because stamps and names of Bundles contain digests that distinguish `false` from an
/// absent field.
const OFF: [&str; 1] = ["createNamespace"];

/// Rule for comparing the value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberRule {
    /// Empty values inside of the value are ignored.
    Reduced,
    /// The value is compared unchanged, because it is user-defined.
    Opaque,
    /// Like `Reduced`, and `false` equals an absent field.
    Off,
    /// Like `Reduced`, but an empty list is not equal to absent.
    Present,
}

impl MemberRule {
    /// Returns the rule for fields with this name.
    pub(super) fn of(name: &str) -> Self {
        if USER_VALUE_FIELDS.contains(&name) {
            Self::Opaque
        } else if OFF.contains(&name) {
            Self::Off
        } else if EMPTY_IS_NOT_ABSENT.contains(&name) {
            Self::Present
        } else {
            Self::Reduced
        }
    }

    /// Returns `true` if the value is not equal to an absent field under this rule.
    pub(super) fn is_set(self, value: &Value) -> bool {
        match (self, value) {
            (_, Value::Null) | (Self::Off, Value::Bool(false)) => false,
            (Self::Opaque, Value::Object(members)) => !members.is_empty(),
            (Self::Opaque, _)
            | (Self::Present, Value::Array(_))
            | (_, Value::Bool(_) | Value::Number(_)) => true,
            (_, Value::String(text)) => !text.is_empty(),
            (_, Value::Array(items)) => !items.is_empty(),
            (_, Value::Object(members)) => {
                let mut members = members.iter();
                members.any(|(name, value)| Self::of(name).is_set(value))
            }
        }
    }

    /// Returns `true` if two values have the same meaning under this rule. Each part of the values
    /// is visited once.
    fn same(self, left: &Value, right: &Value) -> bool {
        match (left, right) {
            (Value::Object(left), Value::Object(right)) if self != Self::Opaque => {
                same_members(left, right)
            }
            // The position of an item matters, so items are compared one by one.
            (Value::Array(left), Value::Array(right)) if self != Self::Opaque => {
                left.len() == right.len()
                    && (left.iter().zip(right)).all(|(left, right)| same(left, right))
            }
            _ => match (self.is_set(left), self.is_set(right)) {
                (false, false) => true,
                (true, true) => left == right,
                _ => false,
            },
        }
    }
}

fn same_members(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.iter().all(|(name, value)| {
        let rule = MemberRule::of(name);
        match right.get(name) {
            Some(other) => rule.same(value, other),
            None => !rule.is_set(value),
        }
    }) && (right.iter())
        .filter(|(name, _)| !left.contains_key(*name))
        .all(|(name, value)| !MemberRule::of(name).is_set(value))
}

/// Returns `true` if two specs have the same meaning. The parsers of Bundles, BundleDeployments,
/// BundleApprovals and ProvisionerClasses follow the same rules, so that equal specs are parsed to
/// equal values. SignaturePolicies are never compared in this way, because their parser rejects
/// unknown fields even if they are empty.
pub fn same(left: &Value, right: &Value) -> bool {
    MemberRule::Reduced.same(left, right)
}

/// Returns the digest of the meaning of a spec. Equal meanings have equal digests.
pub fn spec_digest(spec: &Value) -> Digest {
    node_digest(Node::Value(spec))
}

/// Input of a digest: an existing value, or an object that consists of several values.
#[derive(Debug, Clone, Copy)]
pub(super) enum Node<'v> {
    /// A value that already exists in memory.
    Value(&'v Value),
    /// Fields of an object, sorted by name.
    Members(&'v [(&'v str, Node<'v>)]),
}

/// Returns the digest of the meaning of a value.
pub(super) fn node_digest(node: Node<'_>) -> Digest {
    digest_of(|writer| writer.node(MemberRule::Reduced, node))
}

/// Returns the digest of the meaning of the spec of a BundleDeployment without `paused`. For a spec
/// that does not set `paused`, the digest equals [`spec_digest`].
pub(super) fn digest_without_pause(spec: &Value) -> Digest {
    digest_of(|writer| match spec {
        Value::Object(members) => {
            let members = sorted(members).filter(|(name, _)| *name != "paused");
            writer.members(members.map(|(name, value)| (name, Node::Value(value))))
        }
        other => writer.node(MemberRule::Reduced, Node::Value(other)),
    })
}

/// Returns the digest of the text that `write` writes. `write` returns `false` if it writes
/// nothing.
fn digest_of(write: impl FnOnce(&mut MeaningWriter<'_, HashWriter<'_>>) -> bool) -> Digest {
    let mut hash = Sha256::new();
    let mut out = HashWriter::new(&mut hash);
    let mut writer = MeaningWriter {
        out: &mut out,
        pending: Vec::new(),
    };
    if !write(&mut writer) {
        writer.text(b"null");
    }
    Digest::from_hash(&hash.finalize())
}

/// Returns the digest of a spec as written, without normalization.
pub fn written_digest(spec: &Value) -> Digest {
    let mut hash = Sha256::new();
    write(&mut HashWriter::new(&mut hash), spec);
    Digest::from_hash(&hash.finalize())
}

/// Returns `true` if two values of the member `name` of a spec have the same meaning.
pub(super) fn same_member(name: &str, left: &Value, right: &Value) -> bool {
    MemberRule::of(name).same(left, right)
}

/// Returns the hash for the name of the Bundle of a template: six hexadecimal digits of a digest of
/// the meaning of `spec.template`. Templates with the same meaning have the same hash in every
/// version of this program.
pub fn template_hash(template: &Value) -> String {
    spec_digest(template).hex()[..6].to_owned()
}

/// Returns compact JSON with sorted keys.
pub(super) fn bytes(value: &Value) -> String {
    let mut text = Vec::new();
    write(&mut text, value);
    String::from_utf8(text).unwrap_or_default()
}

/// Writes compact JSON with sorted keys to `out`. Writing to `out` must not fail.
pub(super) fn write(out: &mut impl Write, value: &Value) {
    match value {
        Value::Object(members) => {
            put(out, b"{");
            for (index, (name, value)) in sorted(members).enumerate() {
                put(out, if index > 0 { b"," } else { b"" });
                put_json(out, name);
                put(out, b":");
                write(out, value);
            }
            put(out, b"}");
        }
        Value::Array(items) => {
            put(out, b"[");
            for (index, item) in items.iter().enumerate() {
                put(out, if index > 0 { b"," } else { b"" });
                write(out, item);
            }
            put(out, b"]");
        }
        other => put_json(out, other),
    }
}

// Writes to a digest or a vector never fail.
fn put(out: &mut impl Write, bytes: &[u8]) {
    let _ = out.write_all(bytes);
}

fn put_json(out: &mut impl Write, value: &(impl serde::Serialize + ?Sized)) {
    let _ = serde_json::to_writer(out, value);
}

/// Returns the members sorted by name. `serde_json` sorts members already, unless another crate
/// enables its feature `preserve_order`.
fn sorted(members: &Map<String, Value>) -> impl Iterator<Item = (&str, &Value)> {
    let is_sorted = members.keys().is_sorted();
    let mut reordered: Vec<_> = if is_sorted {
        Vec::new()
    } else {
        members.iter().collect()
    };
    reordered.sort_unstable_by_key(|(name, _)| *name);
    let in_place = members.iter().take(if is_sorted { usize::MAX } else { 0 });
    (reordered.into_iter().chain(in_place)).map(|(name, value)| (name.as_str(), value))
}

/// Writes the normalized value in one pass. Names and braces are delayed until a nested value with
/// a meaning is written.
struct MeaningWriter<'a, W> {
    out: &'a mut W,
    /// Names and braces to write before the next value that has a meaning.
    pending: Vec<u8>,
}

impl<W: Write> MeaningWriter<'_, W> {
    /// Writes the node. Returns `false` and writes nothing if the node has no meaning.
    fn node(&mut self, rule: MemberRule, node: Node<'_>) -> bool {
        let value = match node {
            Node::Members(members) => return self.members(members.iter().copied()),
            Node::Value(value) => value,
        };
        match value {
            Value::Object(members) if rule != MemberRule::Opaque => {
                let members = sorted(members);
                self.members(members.map(|(name, value)| (name, Node::Value(value))))
            }
            _ if !rule.is_set(value) => false,
            Value::Array(items) if rule != MemberRule::Opaque => {
                self.text(b"[");
                for (index, item) in items.iter().enumerate() {
                    self.text(if index > 0 { b"," } else { b"" });
                    // The position of an item matters, so no item is omitted.
                    if !self.node(MemberRule::Reduced, Node::Value(item)) {
                        self.text(b"null");
                    }
                }
                self.text(b"]");
                true
            }
            other => {
                self.text(b"");
                write(self.out, other);
                true
            }
        }
    }

    /// Writes an object with these fields, sorted by name. Returns `false` and writes nothing if no
    /// field has a meaning.
    fn members<'v>(&mut self, members: impl Iterator<Item = (&'v str, Node<'v>)>) -> bool {
        let before = self.pending.len();
        self.pending.push(b'{');
        let mut is_set = false;
        for (name, node) in members {
            let start = self.pending.len();
            if is_set {
                self.pending.push(b',');
            }
            put_json(&mut self.pending, name);
            self.pending.push(b':');
            if self.node(MemberRule::of(name), node) {
                is_set = true;
            } else {
                self.pending.truncate(start);
            }
        }
        if is_set {
            self.text(b"}");
        } else {
            self.pending.truncate(before);
        }
        is_set
    }

    fn text(&mut self, text: &[u8]) {
        put(self.out, &self.pending);
        self.pending.clear();
        put(self.out, text);
    }
}

#[cfg(test)]
mod agreement;
#[cfg(test)]
mod reduction;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn absent_null_and_empty_are_equal() {
        let plain =
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"branch": "b"}}}});
        for same_thing in [
            json!({"source": {"git": {"ref": {"branch": "b"}, "repository": "r"}, "type": "git"}}),
            json!({"source": {"type": "git", "image": null, "git": {"repository": "r", "ref": {"branch": "b", "tag": ""}}}}),
            json!({"source": {"type": "git", "configMaps": [], "git": {"repository": "r", "directory": "", "ref": {"branch": "b"}, "auth": {"secret": {}}}}}),
        ] {
            assert!(same(&plain, &same_thing), "{same_thing}");
            assert_eq!(spec_digest(&plain), spec_digest(&same_thing));
        }
        for other in [
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"branch": "c"}}}}),
            json!({"source": {"type": "git", "git": {"repository": "r", "ref": {"tag": "b"}}}}),
            json!({}),
            Value::Null,
        ] {
            assert!(!same(&plain, &other), "{other}");
            assert_ne!(spec_digest(&plain), spec_digest(&other));
        }
        assert!(same(&json!({}), &Value::Null));
    }

    #[test]
    fn user_values_are_compared_unchanged() {
        let spec = |config: Value| json!({"config": config, "template": {"metadata": {}}});
        assert!(same(&spec(json!({})), &spec(Value::Null)));
        assert!(!same(&spec(json!({"a": ""})), &spec(json!({}))));
        assert!(!same(&spec(json!({"a": null})), &spec(json!({"a": ""}))));
        let labels = |labels: Value| json!({"metadata": {"labels": labels}});
        assert!(!same(&labels(json!({"a": ""})), &labels(json!({}))));
    }

    #[test]
    fn create_namespace_false_equals_absent() {
        let spec = |value: Value| json!({"targetNamespace": "a", "createNamespace": value});
        let absent = json!({"targetNamespace": "a"});
        assert_eq!(
            spec_digest(&absent).hex()[..12],
            *"1fd62eda706c",
            "objects that exist keep their digest"
        );
        for nothing in [json!(false), Value::Null] {
            assert!(same(&absent, &spec(nothing.clone())), "{nothing}");
            assert_eq!(spec_digest(&absent), spec_digest(&spec(nothing)));
        }
        assert!(!same(&absent, &spec(json!(true))));
        // Other boolean fields, and the content of `config`, are compared unchanged.
        assert!(!same(&json!({"paused": false}), &json!({})));
        let config = |value: Value| json!({"config": value});
        assert!(!same(
            &config(json!({"createNamespace": false})),
            &config(json!({}))
        ));
    }

    #[test]
    fn digest_without_pause_ignores_no_other_field() {
        let spec = json!({"provisionerClassName": "a", "config": {"paused": true}});
        for paused in [json!(true), json!(false), Value::Null] {
            let mut written = spec.clone();
            written["paused"] = paused;
            assert_eq!(digest_without_pause(&written), spec_digest(&spec));
        }
        let other = json!({"provisionerClassName": "a", "config": {}, "paused": true});
        assert_ne!(digest_without_pause(&other), spec_digest(&spec));
        for empty in [json!({}), json!({"paused": true}), Value::Null] {
            assert_eq!(digest_without_pause(&empty), spec_digest(&Value::Null));
        }
    }

    #[test]
    fn list_order_matters() {
        assert!(!same(&json!([{}, {"a": 1}]), &json!([{"a": 1}, {}])));
        assert!(same(&json!([{"b": ""}, {"a": 1}]), &json!([{}, {"a": 1}])));
    }

    #[test]
    fn the_hash_of_a_template_is_fixed() {
        let template = json!({"spec": {"provisionerClassName": "core-rukpak-io-plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}}});
        assert_eq!(template_hash(&template), "e673a6");
        let mut same_thing = template.clone();
        same_thing["metadata"] = json!({"labels": {}});
        assert_eq!(template_hash(&template), template_hash(&same_thing));
        same_thing["metadata"] = json!({"labels": {"a": "b"}});
        assert_ne!(template_hash(&template), template_hash(&same_thing));
    }
}
