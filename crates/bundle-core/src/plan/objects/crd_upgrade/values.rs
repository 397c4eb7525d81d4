//! Comparison of JSON values of two definitions, and their texts in messages.

use std::cmp::Ordering;
use std::fmt::{self, Write as _};

use serde_json::{Number, Value};

use super::MAX_TEXT;

/// Maximum length of the text of one value, in bytes. Messages contain at most [`MAX_TEXT`] bytes,
/// and mark longer texts as truncated.
const MAX_VALUE_TEXT: usize = 2 * MAX_TEXT;
/// A number with a larger absolute value is not equal to an integer of 64 bits.
const MAX_INTEGER: f64 = 2e19;

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

/// Compares two JSON values in a total order, so that lists of values can be sorted and searched
/// without copies of the values. 1.0 is equal to 1.
pub(super) fn order(left: &Value, right: &Value) -> Ordering {
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) => order_of_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            let items = a.iter().zip(b).map(|(a, b)| order(a, b));
            first_difference(items).then(a.len().cmp(&b.len()))
        }
        (Value::Object(a), Value::Object(b)) => {
            let fields = a.iter().zip(b);
            let fields = fields.map(|((a, left), (b, right))| a.cmp(b).then(order(left, right)));
            first_difference(fields).then(a.len().cmp(&b.len()))
        }
        _ => rank(left).cmp(&rank(right)),
    }
}

fn first_difference(mut parts: impl Iterator<Item = Ordering>) -> Ordering {
    let difference = parts.find(|part| part.is_ne());
    difference.unwrap_or(Ordering::Equal)
}

fn rank(value: &Value) -> u8 {
    match value {
        Value::Null => 0,
        Value::Bool(_) => 1,
        Value::Number(_) => 2,
        Value::String(_) => 3,
        Value::Array(_) => 4,
        Value::Object(_) => 5,
    }
}

/// Compares two numbers. All whole numbers precede all other numbers, so that no comparison rounds
/// a number.
fn order_of_numbers(left: &Number, right: &Number) -> Ordering {
    match (whole(left), whole(right)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => {
            let float = |number: &Number| number.as_f64().unwrap_or_default();
            float(left).total_cmp(&float(right))
        }
    }
}

/// Returns the number as an integer. Returns `None` for numbers that are not whole, or that are
/// larger than [`MAX_INTEGER`].
fn whole(number: &Number) -> Option<i128> {
    if let Some(integer) = number.as_i64() {
        return Some(integer.into());
    }
    if let Some(integer) = number.as_u64() {
        return Some(integer.into());
    }
    let float = number.as_f64()?;
    if float.fract() != 0.0 || float.abs() > MAX_INTEGER {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the number is whole, and 128 bits are sufficient"
    )]
    let integer = float as i128;
    Some(integer)
}

/// Returns the JSON text of a value for a message. Only the beginning of a long text is written,
/// because default values and enumerations can have many MiB.
pub(super) fn json_text(value: &Value) -> String {
    let mut text = Beginning(String::new());
    // The only error is that the text has reached its maximum length.
    let _ = write!(text, "{value}");
    text.0
}

/// Returns the text of a value of an enumeration. The text of 1.0 is `1`, because the API server
/// stores the number 1.0 as 1.
pub(super) fn enum_text(value: &Value) -> String {
    let number = value.as_number().filter(|number| number.is_f64());
    number
        .and_then(Number::as_f64)
        .map_or_else(|| json_text(value), |number| number.to_string())
}

/// Text with at most [`MAX_VALUE_TEXT`] bytes. Writing more bytes fails.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        let end = part.floor_char_boundary(MAX_VALUE_TEXT.saturating_sub(self.0.len()));
        self.0.push_str(&part[..end]);
        if end < part.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn order_is_total_and_agrees_with_equality() {
        let values = [
            json!(null),
            json!(false),
            json!(true),
            json!(-1),
            json!(1),
            json!(1.0),
            json!(1.5),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992.0),
            json!(u64::MAX),
            json!(1e300),
            json!("1"),
            json!("a"),
            json!([]),
            json!([1]),
            json!([1.0, 2]),
            json!({}),
            json!({"a": 1}),
            json!({"a": 1.0}),
            json!({"a": 2}),
            json!({"b": 1}),
        ];
        for a in &values {
            for b in &values {
                assert_eq!(order(a, b), order(b, a).reverse(), "{a} {b}");
                for c in &values {
                    if order(a, b).is_le() && order(b, c).is_le() {
                        assert!(order(a, c).is_le(), "{a} {b} {c}");
                    }
                }
            }
        }
        for (left, right) in [
            (json!(1), json!(1.0)),
            (json!([1, {"a": 1}]), json!([1.0, {"a": 1.0}])),
        ] {
            assert!(order(&left, &right).is_eq() && is_equal(&left, &right));
        }
        let integer = json!(9_007_199_254_740_993_u64);
        let float = json!(9_007_199_254_740_992.0);
        assert!(order(&integer, &float).is_ne());
    }

    #[test]
    fn long_values_are_not_written_completely() {
        assert_eq!(json_text(&json!({"a": [1.0, "b"]})), r#"{"a":[1.0,"b"]}"#);
        assert_eq!(enum_text(&json!(1.0)), "1");
        for value in [json!("ü".repeat(100_000)), json!(vec![1; 100_000])] {
            let text = json_text(&value);
            assert!(text.len() > MAX_TEXT, "{}", text.len());
            assert!(text.len() <= MAX_VALUE_TEXT, "{}", text.len());
        }
    }
}
