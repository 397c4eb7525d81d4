//! Writes values of the configuration into objects.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::{
    diagnostic::{Finding, Findings, codes},
    field_path::pointer_key,
    footprint::Footprint,
    object::{self, GroupKind, Manifest, ObjectId},
    package::{self, ConfigPatch},
    yaml::Document,
};

/// Maximum memory of all written values together, in bytes.
const WRITTEN: u64 = 1 << 20;

/// Writes the values of `config` into `objects`, in the order of the patches. A patch has no effect
/// if the configuration does not have its value. Each changed object is validated again and must
/// keep its identity. Errors are added to `findings`.
pub fn apply(
    patches: &[ConfigPatch],
    config: &Value,
    objects: &mut [Manifest],
    findings: &mut Findings,
) {
    let mut written = Footprint(0);
    let mut changed = BTreeSet::new();
    for (index, patch) in patches.iter().enumerate() {
        let reject = |message: String, hint: &str| {
            Finding::error(codes::format::BAD_CONFIG_PATCH, message)
                .in_file(package::FILE)
                .at_field(format!("config.patches[{index}]"))
                .hint(hint)
        };
        let kind = GroupKind::parse(&patch.kind);
        let mut matching = (0..objects.len()).filter(|at| selects(patch, &kind, &objects[*at].id));
        let Some(at) = matching.next() else {
            let message = format!("the content has no {kind} with the name {}", patch.name);
            findings.push(reject(message, "correct kind, namespace and name in the patch, so that they select an object of the content"));
            continue;
        };
        if let Some(other) = matching.next() {
            let (first, other) = (&objects[at].id, &objects[other].id);
            let message = format!("the patch names both {first} and {other}");
            findings.push(reject(
                message,
                "add the namespace of the object to the patch",
            ));
            continue;
        }
        let value = config
            .pointer(&patch.value)
            .filter(|value| !value.is_null());
        let Some(value) = value else {
            continue;
        };
        written = written.plus(Footprint::of(value));
        if written.0 > WRITTEN {
            let message = format!("all patches together write more than {} KiB", WRITTEN >> 10);
            findings.push(reject(message, "shorten spec.config, or use fewer patches"));
            return;
        }
        let object = &mut objects[at];
        let Some(field) = field(&mut object.value, &patch.path) else {
            let message = format!("{} has no field that contains {}", object.id, patch.path);
            let hint = "add the field to the manifest, or patch a field whose parent exists";
            findings.push(reject(message, hint));
            continue;
        };
        field.clone_from(value);
        changed.insert(at);
    }
    for at in changed {
        revalidate(&mut objects[at], findings);
    }
}

fn selects(patch: &ConfigPatch, kind: &GroupKind, id: &ObjectId) -> bool {
    let namespace = patch.namespace.as_deref();
    id.name == patch.name
        && id.kind == kind.kind
        && id.group == kind.group
        && (namespace.is_none() || namespace == id.namespace.as_deref())
}

/// Returns the field at `pointer`. Adds the field if it does not exist and its parent is a map.
/// Returns `None` if the parent does not exist.
fn field<'a>(object: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let (parent, last) = pointer.rsplit_once('/')?;
    match object.pointer_mut(parent)? {
        Value::Object(map) => Some(map.entry(pointer_key(last)).or_insert(Value::Null)),
        Value::Array(items) => items.get_mut(last.parse::<usize>().ok()?),
        _ => None,
    }
}

/// Validates a changed object with the rules for objects that are read from a file.
fn revalidate(object: &mut Manifest, findings: &mut Findings) {
    let document = Document {
        value: std::mem::take(&mut object.value),
        line: object.line,
    };
    // If `object::read` returns no object, `findings` contains the errors.
    let Some(read) = object::read(document, &object.file, findings) else {
        return;
    };
    if read.id == object.id {
        *object = read;
    } else {
        let message = format!("the configuration changes the identity of {}", object.id);
        findings.push(
            Finding::error(codes::format::BAD_CONFIG_PATCH, message)
                .in_file(package::FILE)
                .hint("remove the patch, or select a field other than apiVersion, kind, name and namespace"),
        );
    }
}
