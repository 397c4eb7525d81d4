//! Reader for the fields of a SignaturePolicy. The reader collects all errors.

use serde_json::{Map, Value};

use crate::diagnostic::{Finding, Findings, codes};

/// Reads values and collects their errors, each with its field.
pub(super) struct Reader {
    name: String,
    pub(super) problems: Findings,
}

impl Reader {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            problems: Findings::default(),
        }
    }

    pub(super) fn problem(&mut self, path: &str, why: &str) {
        self.problems.push(unreadable(&self.name, path, why));
    }

    /// Returns the value as an object. If the value has another type, adds an error and returns
    /// `None`. Unknown fields are errors, because an unknown field might be a condition that this
    /// version does not check.
    pub(super) fn object<'v>(
        &mut self,
        path: &str,
        value: &'v Value,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(map) = value.as_object() else {
            self.problem(path, "it is not an object");
            return None;
        };
        for field in map.keys().filter(|key| !known.contains(&key.as_str())) {
            let field: String = field.chars().take(64).collect();
            self.problem(
                &format!("{path}.{field}"),
                &format!("unknown field; the known fields are {}", known.join(", ")),
            );
        }
        Some(map)
    }

    /// Returns the text of an optional field; `None` if the field is absent. If the field has
    /// another type, adds an error and returns `None`.
    pub(super) fn text<'v>(
        &mut self,
        path: &str,
        map: &'v Map<String, Value>,
        field: &str,
    ) -> Option<&'v str> {
        let value = map.get(field).filter(|value| !value.is_null())?;
        if value.is_string() {
            return value.as_str();
        }
        self.problem(&format!("{path}.{field}"), "it is not a string");
        None
    }
}

pub(super) fn subject(name: &str) -> String {
    format!("SignaturePolicy/{name}")
}

pub(super) fn unreadable(name: &str, path: &str, why: &str) -> Finding {
    Finding::error(codes::trust::POLICY_UNREADABLE, why)
        .about(subject(name))
        .at_field(path)
        .hint("the policy rejects every matching reference until it is corrected")
}
