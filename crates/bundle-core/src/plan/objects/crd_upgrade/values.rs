//! Comparison of JSON values of two definitions.

use serde_json::Value;

/// Returns true if both values are absent or equal.
pub(super) fn same(left: Option<&Value>, right: Option<&Value>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => is_equal(left, right),
        (left, right) => left.is_none() && right.is_none(),
    }
}

/// Returns true if two JSON values are equal. 1.0 is equal to 1, because the API server stores the
/// number 1.0 as 1.
fn is_equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => {
            a == b || (a.is_f64() || b.is_f64()) && a.as_f64() == b.as_f64()
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let equals = |(key, a)| b.get(key).is_some_and(|b| is_equal(a, b));
            a.len() == b.len() && a.iter().all(equals)
        }
        _ => left == right,
    }
}
