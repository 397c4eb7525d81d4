//! Path of a field within an object, as steps. The path is displayed as in Kubernetes messages, and
//! never parsed from text.

use std::fmt;

use serde_json::Value;

/// Step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Field of a map.
    Key(String),
    /// Item of a list.
    Item(usize),
    /// Text after the first `=` of an argument: `--image=` of `--image=web:1.4.0`. This step is
    /// always the last step of a path.
    After(String),
}

/// Path of a field: `spec.template.spec.containers[0].image`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldPath(pub Vec<Step>);

impl FieldPath {
    /// Returns a mutable reference to the value at the path; `None` if the object has no such
    /// field. If the path names a part of an argument, returns the whole argument.
    pub(super) fn of<'v>(&self, value: &'v mut Value) -> Option<&'v mut Value> {
        let mut value = value;
        for step in &self.0 {
            value = match step {
                Step::Key(key) => value.as_object_mut()?.get_mut(key)?,
                Step::Item(index) => value.as_array_mut()?.get_mut(*index)?,
                Step::After(_) => return Some(value),
            };
        }
        Some(value)
    }

    /// Returns the prefix of the field's text before the image.
    pub(super) fn before(&self) -> &str {
        match self.0.last() {
            Some(Step::After(text)) => text,
            _ => "",
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.0.iter().enumerate() {
            match step {
                Step::Key(key) if is_plain(key) => {
                    if index > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(key)?;
                }
                Step::Key(key) => write!(f, "[{key:?}]")?,
                Step::Item(item) => write!(f, "[{item}]")?,
                Step::After(flag) => write!(f, " ({})", flag.trim_end_matches('=').escape_debug())?,
            }
        }
        Ok(())
    }
}

impl serde::Serialize for FieldPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn is_plain(key: &str) -> bool {
    !key.is_empty()
        && key
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn displays_paths_like_kubernetes() {
        let key = |key: &str| Step::Key(key.to_owned());
        let path = FieldPath(vec![
            key("spec"),
            key("containers"),
            Step::Item(1),
            key("a.b/c"),
            key("args"),
            Step::Item(0),
            Step::After("--x-image=".to_owned()),
        ]);
        assert_eq!(
            path.to_string(),
            "spec.containers[1][\"a.b/c\"].args[0] (--x-image)"
        );
        let mut value =
            json!({"spec": {"containers": [{}, {"a.b/c": {"args": ["--x-image=web:1"]}}]}});
        assert_eq!(path.of(&mut value), Some(&mut json!("--x-image=web:1")));
        assert_eq!(path.before(), "--x-image=");
        assert_eq!(path.of(&mut json!({"spec": []})), None);
    }
}
