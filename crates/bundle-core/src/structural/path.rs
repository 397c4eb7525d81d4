//! Path of a field, in the object and in its schema. The path is converted to text only for
//! violations.

use serde_json::Value;

use super::{child, item};

/// Step from a value to one of its children.
#[derive(Debug, Clone, Copy)]
enum Step<'v> {
    /// Field that the schema names.
    Property(&'v str),
    /// Entry of a map (`additionalProperties`). The schema does not contain its key.
    Entry(&'v str),
    /// Item of a list.
    Item(usize),
}

/// Path of a field.
pub(super) struct Path<'v> {
    /// Path of the whole value in messages.
    root: &'v str,
    steps: Vec<Step<'v>>,
}

impl<'v> Path<'v> {
    pub(super) fn new(root: &'v str) -> Self {
        Self {
            root,
            steps: Vec::new(),
        }
    }

    /// Adds the step to the field `key` of an object with `schema`.
    pub(super) fn push_field(&mut self, schema: &Value, key: &'v str) {
        let is_property = schema
            .get("properties")
            .is_some_and(|all| all.get(key).is_some());
        self.steps.push(if is_property {
            Step::Property(key)
        } else {
            Step::Entry(key)
        });
    }

    /// Adds the step to a field that the schema requires.
    pub(super) fn push_required(&mut self, key: &'v str) {
        self.steps.push(Step::Property(key));
    }

    pub(super) fn push_item(&mut self, index: usize) {
        self.steps.push(Step::Item(index));
    }

    pub(super) fn pop(&mut self) {
        self.steps.pop();
    }

    /// Removes all steps.
    pub(super) fn clear(&mut self) {
        self.steps.clear();
    }

    /// Returns the path in the object: `spec.ports[0].name`.
    pub(super) fn in_object(&self) -> String {
        let steps = self.steps.iter();
        steps.fold(self.root.to_owned(), |path, step| match step {
            Step::Property(key) | Step::Entry(key) => child(&path, key),
            Step::Item(index) => item(&path, *index),
        })
    }

    /// Returns the path in the schema: `^.spec.ports[*].name`.
    pub(super) fn in_schema(&self) -> String {
        let mut text = "^".to_owned();
        for step in &self.steps {
            match step {
                Step::Property(key) => {
                    text.push('.');
                    text.push_str(key);
                }
                Step::Entry(_) | Step::Item(_) => text.push_str("[*]"),
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn path_in_the_schema_contains_no_key_of_the_object() {
        let schema = json!({"properties": {"labels": {}}});
        let mut path = Path::new("spec");
        path.push_field(&schema, "labels");
        path.push_field(&json!({"additionalProperties": {}}), "secret/key");
        path.push_item(3);
        path.push_required("name");
        assert_eq!(path.in_object(), "spec.labels[secret/key][3].name");
        assert_eq!(path.in_schema(), "^.labels[*][*].name");
        path.pop();
        path.clear();
        assert_eq!(
            (path.in_object().as_str(), path.in_schema().as_str()),
            ("spec", "^")
        );
    }
}
