//! Lists of type `set` and `map`: duplicate items or keys are rejected.

use std::borrow::Cow;
use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::path::Path;
use super::{BudgetExceeded, Report, ValidationBudget, brief, of_field, text};

/// Keyword of the schema for the type of a list: `atomic`, `set` or `map`.
const LIST_TYPE: &str = "x-kubernetes-list-type";
/// Keyword of the schema for the key fields of the items of a list of type `map`.
const MAP_KEYS: &str = "x-kubernetes-list-map-keys";

/// Reports items that appear twice.
pub(super) fn find<'v>(
    (schema, value): (&'v Value, &'v Value),
    path: &mut Path<'v>,
    budget: &mut ValidationBudget<'_>,
    report: &mut dyn Report,
) -> Result<(), BudgetExceeded> {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                budget.charge_iteration(key)?;
                if let Some(field) = of_field(schema, key) {
                    path.push_field(schema, key);
                    find((field, value), path, budget, report)?;
                    path.pop();
                }
            }
        }
        Value::Array(items) => {
            match text(schema, LIST_TYPE) {
                Some("set") => find_duplicates(items, None, path, budget, report)?,
                Some("map") => {
                    let keys = map_keys(schema, budget)?;
                    find_duplicates(items, Some(&keys), path, budget, report)?;
                }
                _ => {}
            }
            if let Some(schema) = schema.get("items") {
                for (index, value) in items.iter().enumerate() {
                    budget.charge_iteration("")?;
                    path.push_item(index);
                    find((schema, value), path, budget, report)?;
                    path.pop();
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// Returns the key fields of a list of type `map`. A key that the schema repeats is returned once.
fn map_keys<'v>(
    schema: &'v Value,
    budget: &mut ValidationBudget<'_>,
) -> Result<BTreeSet<&'v str>, BudgetExceeded> {
    let mut keys = BTreeSet::new();
    let listed = schema.get(MAP_KEYS).and_then(Value::as_array);
    for key in listed.into_iter().flatten() {
        let key = key.as_str();
        budget.charge_iteration(key.unwrap_or_default())?;
        if let Some(key) = key {
            keys.insert(key);
        }
    }
    Ok(keys)
}

/// Returns an object with the key fields of an item.
fn key_of(
    item: &Value,
    keys: &BTreeSet<&str>,
    budget: &mut ValidationBudget<'_>,
) -> Result<Value, BudgetExceeded> {
    let mut fields = Map::new();
    for key in keys {
        budget.charge_iteration(key)?;
        if let Some(value) = item.get(*key) {
            fields.insert((*key).to_owned(), value.clone());
        }
    }
    Ok(Value::Object(fields))
}

/// Reports each item that equals a previous item. With `keys`, only these fields are compared.
fn find_duplicates(
    items: &[Value],
    keys: Option<&BTreeSet<&str>>,
    path: &mut Path<'_>,
    budget: &mut ValidationBudget<'_>,
    report: &mut dyn Report,
) -> Result<(), BudgetExceeded> {
    let what = match keys {
        Some(_) => "an item with the key",
        None => "the item",
    };
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let compared = match keys {
            Some(keys) => Cow::Owned(key_of(item, keys, budget)?),
            None => Cow::Borrowed(item),
        };
        let text = compared.to_string();
        budget.charge_iteration(&text)?;
        if !seen.insert(text) {
            path.push_item(index);
            let message = || format!("{what} {} appears twice", brief(&compared));
            report.add(path, LIST_TYPE, false, &message);
            path.pop();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{MAX_STEPS, Patterns, violations};
    use super::*;

    /// Returns the number of violations, if the steps of one validation are sufficient.
    fn count(schema: &Value, value: &Value) -> Result<usize, BudgetExceeded> {
        let limits = (
            &mut Patterns::limited(),
            &mut ValidationBudget::without_deadline(MAX_STEPS),
        );
        violations(schema, value, limits, 20).map(|found| found.len())
    }

    /// Without the limit, this test would look up 30 billion keys.
    #[test]
    fn keys_of_lists_with_many_items_are_limited() {
        let list = |keys: Vec<String>| json!({"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
        let many: Vec<String> = (0..100_000).map(|number| format!("k{number}")).collect();
        let items: Vec<Value> = (0..300_000).map(|number| json!({"k0": number})).collect();
        let items = json!(items);
        let ordinary = list(vec!["k0".to_owned(), "protocol".to_owned()]);
        assert_eq!(count(&ordinary, &items), Ok(0));
        assert_eq!(count(&list(many.clone()), &items), Err(BudgetExceeded));
        // The keys also count for each empty list.
        let schema = json!({"items": list(many)});
        let lists = json!(vec![json!([]); 300_000]);
        assert_eq!(count(&schema, &lists), Err(BudgetExceeded));
    }

    #[test]
    fn repeated_keys_of_lists_are_read_once() {
        let schema = json!({LIST_TYPE: "map", MAP_KEYS: vec!["n"; 300_000]});
        let value = json!([{"n": 1}, {"n": 2}, {"n": 1, "x": 1}]);
        assert_eq!(count(&schema, &value), Ok(1));
        let items = (0..40_000).map(|number| json!({"n": number}));
        assert_eq!(count(&schema, &Value::Array(items.collect())), Ok(0));
    }
}
