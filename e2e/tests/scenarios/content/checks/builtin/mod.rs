//! Cases for objects of built-in kinds. Each case changes one field of a valid object of its kind.

mod bases;
mod fields;
mod values;

pub(super) use bases::BASES;

/// A kind: a name for the cases, the path of its collection, and a valid object.
pub(super) type Base = (&'static str, &'static str, &'static str);

const POD: &str = "/spec/template/spec";

/// A case: its name; `true` if the API server accepts the changed object; the kind; the path of a
/// field; and the new value of the field in YAML (`-` removes the field).
pub(super) type Case = (&'static str, bool, &'static str, &'static str, &'static str);

/// Expands a path: `$` is the pod spec in the template of a workload, and `@` is its first
/// container.
pub(super) fn pointer(path: &str) -> String {
    path.replace('@', "$/containers/0").replace('$', POD)
}

/// Returns all cases.
pub(super) fn cases() -> impl Iterator<Item = &'static Case> {
    fields::CASES.iter().chain(values::CASES)
}
