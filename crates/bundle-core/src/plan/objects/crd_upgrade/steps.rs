//! Limit for the comparisons of the schemas of two definitions. Authors of content can write
//! definitions with large schemas and many versions, and each new version can be compared with each
//! version on the cluster.

use std::fmt;

use serde_json::Value;

/// Maximum number of steps of all comparisons of two definitions. The comparison of two schemas
/// needs one step for each JSON value in both schemas, such as a value of an enumeration, one step
/// for each key of an object, and one step for each 64 bytes of a text.
///
/// The comparison of a definition of 1 MiB with its next release needs about 400,000 steps
/// (estimated).
pub const MAX_STEPS: usize = 2_000_000;

/// Number of bytes of a text that one step compares.
const BYTES: usize = 64;

/// Steps that remain for the comparisons of two definitions.
#[derive(Debug)]
pub(super) struct ComparisonSteps(usize);

/// Error if the comparisons of two definitions need more than [`MAX_STEPS`] steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManySteps;

impl fmt::Display for TooManySteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the comparison with the definition on the cluster needs more than {MAX_STEPS} steps"
        )
    }
}

impl Default for ComparisonSteps {
    fn default() -> Self {
        Self(MAX_STEPS)
    }
}

impl ComparisonSteps {
    /// Subtracts the steps of a comparison of two schemas. If too few steps remain, this call and
    /// all later calls return an error.
    pub(super) fn subtract(&mut self, (old, new): (&Value, &Value)) -> Result<(), TooManySteps> {
        if subtract(old, &mut self.0) && subtract(new, &mut self.0) {
            return Ok(());
        }
        self.0 = 0;
        Err(TooManySteps)
    }
}

/// Subtracts the steps for one value from `left`. Returns false if fewer steps are left. The
/// recursion is limited, because the nesting of parsed JSON is limited.
fn subtract(value: &Value, left: &mut usize) -> bool {
    let steps = match value {
        Value::String(text) => of_text(text),
        _ => 1,
    };
    if !subtract_number(steps, left) {
        return false;
    }
    match value {
        Value::Array(items) => items.iter().all(|item| subtract(item, left)),
        Value::Object(fields) => fields
            .iter()
            .all(|(key, field)| subtract_number(of_text(key), left) && subtract(field, left)),
        _ => true,
    }
}

fn subtract_number(steps: usize, left: &mut usize) -> bool {
    let rest = left.checked_sub(steps);
    *left = rest.unwrap_or_default();
    rest.is_some()
}

fn of_text(text: &str) -> usize {
    text.len() / BYTES + 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_keys_and_long_texts_need_steps() {
        for (value, expected) in [
            (json!(null), 1),
            (json!({"a": 1}), 3),
            (json!({"enum": [1, 2, 3]}), 6),
            (json!("x".repeat(64)), 2),
            (json!({"x".repeat(640): true}), 13),
        ] {
            let mut left = expected;
            assert!(subtract(&value, &mut left), "{value}");
            assert_eq!(left, 0, "{value}");
            let mut left = expected - 1;
            assert!(!subtract(&value, &mut left), "{value}");
        }
    }

    #[test]
    fn no_steps_remain_after_an_error() {
        let mut steps = ComparisonSteps(4);
        let small = json!(1);
        let large = json!([1, 2, 3]);
        assert_eq!(steps.subtract((&small, &small)), Ok(()));
        assert_eq!(steps.subtract((&small, &large)), Err(TooManySteps));
        assert_eq!(steps.subtract((&small, &small)), Err(TooManySteps));
    }
}
