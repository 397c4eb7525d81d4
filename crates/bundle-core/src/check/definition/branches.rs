//! `allOf`, `anyOf`, `oneOf` and `not` in a schema of a CRD. These branches may only restrict
//! fields that the schema specifies outside of the branches.

use serde_json::{Value, json};

use super::schema::SchemaCheck;
use crate::structural::{Pattern, PatternError, Problem, child, item, text};

impl SchemaCheck<'_> {
    /// Checks the restrictions of a schema and of its branches. `outer` specifies the types of the
    /// fields that `branch` restricts.
    pub(super) fn values(
        &mut self,
        branch: &Value,
        outer: Option<&Value>,
        path: &str,
        at_outer: &str,
    ) {
        if let Some(pattern) = text(branch, "pattern").filter(|pattern| !pattern.is_empty()) {
            match Pattern::new(pattern) {
                Ok(_) => {}
                Err(PatternError::Bad(why)) => self.report(
                    &child(path, "pattern"),
                    format!("`{pattern}` is not a regular expression: {why}"),
                ),
                Err(PatternError::Unknown(why)) => self.problems.push(Problem::unchecked(
                    &child(path, "pattern"),
                    format!("the pattern `{pattern}`, because {why}"),
                )),
            }
        }
        let either = json!([{"type": "integer"}, {"type": "string"}]);
        for key in ["allOf", "anyOf", "oneOf"] {
            let list = branch.get(key).and_then(Value::as_array);
            if key == "anyOf" && branch.get(key) == Some(&either) {
                continue;
            }
            for (index, one) in list.into_iter().flatten().enumerate() {
                let at = item(&child(path, key), index);
                let is_either = key == "allOf" && index == 0 && one.get("anyOf") == Some(&either);
                if is_either {
                    let mut rest = one.clone();
                    rest.as_object_mut().map(|map| map.remove("anyOf"));
                    self.branch(&rest, outer, &at, at_outer);
                } else {
                    self.branch(one, outer, &at, at_outer);
                }
            }
        }
        if let Some(not) = branch.get("not").filter(|not| not.is_object()) {
            self.branch(not, outer, &child(path, "not"), at_outer);
        }
    }

    /// Checks a schema in `allOf`, `anyOf`, `oneOf` or `not`. Such a schema may only restrict
    /// fields that the enclosing schema specifies.
    fn branch(&mut self, branch: &Value, outer: Option<&Value>, path: &str, at_outer: &str) {
        if !self.shape(branch, path) {
            return;
        }
        self.forbidden(branch, path);
        for key in [
            "type",
            "title",
            "description",
            "default",
            "nullable",
            "additionalProperties",
            "x-kubernetes-preserve-unknown-fields",
            "x-kubernetes-embedded-resource",
            "x-kubernetes-int-or-string",
            "x-kubernetes-list-map-keys",
            "x-kubernetes-list-type",
            "x-kubernetes-map-type",
            "x-kubernetes-validations",
        ] {
            let set = branch.get(key).is_some_and(|value| {
                !(value.is_null()
                    || *value == Value::Bool(false) && key != "additionalProperties"
                    || value.as_str() == Some(""))
            });
            if set {
                self.report(
                    &child(path, key),
                    "a structural schema allows it only outside of allOf, anyOf, oneOf and not",
                );
            }
        }
        self.values(branch, outer, path, at_outer);
        for (key, field) in branch
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let at = child(&child(path, "properties"), key);
            let at_outer = child(&child(at_outer, "properties"), key);
            if key == "metadata" {
                self.report(
                    &at,
                    "it is not allowed inside of allOf, anyOf, oneOf and not",
                );
            }
            let described = outer
                .and_then(|outer| outer.get("properties"))
                .and_then(|fields| fields.get(key));
            let lacks = outer.is_some() && described.is_none();
            self.part(field, described, lacks, &at, &at_outer);
        }
        if let Some(items) = branch.get("items").filter(|items| items.is_object()) {
            let at = child(path, "items");
            let described = outer.and_then(|outer| outer.get("items"));
            let lacks = outer.is_some() && described.is_none();
            self.part(items, described, lacks, &at, &child(at_outer, "items"));
        }
    }

    /// Checks the schema `branch` of a field or of list items within a branch. `outer` is the
    /// schema of the same field or items in the enclosing schema. `lacks` is `true` if the
    /// enclosing schema does not specify them.
    fn part(
        &mut self,
        branch: &Value,
        outer: Option<&Value>,
        lacks: bool,
        path: &str,
        at_outer: &str,
    ) {
        if lacks {
            self.report(
                at_outer,
                format!("the field is required, because {path} restricts it"),
            );
        } else {
            self.branch(branch, outer, path, at_outer);
        }
    }
}
