//! Types, limits, enumerations, required fields, `allOf`, `anyOf`, `oneOf` and `not`.

use serde_json::{Number, Value};

use super::path::Path;
use super::{
    BudgetExceeded, PatternError, Patterns, Report, ValidationBudget, brief, flag, formats,
    of_field, text,
};

/// Keyword for formats of built-in kinds that the API server checks when it decodes an object:
/// `quantity`, `base64`. Schemas in CRDs do not have this keyword.
const FORMAT: &str = "x-bundle-format";

/// State of one validation. If the budget is exceeded, the validation ends with an error.
pub(super) struct Validation<'v, 'r, 'c> {
    path: Path<'v>,
    patterns: &'r mut Patterns,
    budget: &'r mut ValidationBudget<'c>,
    /// Number of enclosing alternatives: branches of `anyOf`, `oneOf` and `not`. Violations in a
    /// branch are counted, but not reported.
    alternatives: usize,
    violations: usize,
    report: &'r mut dyn Report,
}

impl<'v, 'r, 'c> Validation<'v, 'r, 'c> {
    pub(super) fn new(
        path: Path<'v>,
        patterns: &'r mut Patterns,
        budget: &'r mut ValidationBudget<'c>,
        report: &'r mut dyn Report,
    ) -> Self {
        Self {
            path,
            patterns,
            budget,
            alternatives: 0,
            violations: 0,
            report,
        }
    }

    /// Ends the validation. Returns the path of the whole value.
    pub(super) fn finish(mut self) -> Path<'v> {
        self.path.clear();
        self.path
    }

    fn add(&mut self, keyword: &'static str, unchecked: bool, message: &dyn Fn() -> String) {
        self.violations += 1;
        if self.alternatives == 0 {
            self.report.add(&self.path, keyword, unchecked, message);
        }
    }

    fn violated(&mut self, keyword: &'static str, message: impl Fn() -> String) {
        self.add(keyword, false, &message);
    }

    /// Validates a value with a schema, or with a branch of a schema.
    pub(super) fn value(
        &mut self,
        schema: &'v Value,
        value: &'v Value,
    ) -> Result<(), BudgetExceeded> {
        self.budget.charge_steps(1)?;
        if !self.has_type(schema, value)? {
            return Ok(());
        }
        if let Some(Value::Array(allowed)) = schema.get("enum")
            && !self.is_one_of(allowed, value)?
        {
            self.violated("enum", || {
                // Messages do not show the empty string, because it means that the field is absent.
                let shown = allowed.iter().filter(|one| one.as_str() != Some(""));
                let allowed: Vec<String> = shown.take(20).map(brief).collect();
                format!("{} is not one of {}", brief(value), allowed.join(", "))
            });
        }
        match value {
            Value::String(value) => self.string(schema, value)?,
            Value::Number(value) => self.number(schema, value),
            Value::Array(items) => {
                self.count(schema, ("maxItems", "minItems"), items.len(), "items");
                if let Some(schema) = schema.get("items") {
                    for (index, value) in items.iter().enumerate() {
                        self.path.push_item(index);
                        self.value(schema, value)?;
                        self.path.pop();
                    }
                }
            }
            Value::Object(map) => {
                let keywords = ("maxProperties", "minProperties");
                self.count(schema, keywords, map.len(), "fields");
                if let Some(Value::Array(required)) = schema.get("required") {
                    for key in required {
                        let key = key.as_str();
                        self.budget.charge_iteration(key.unwrap_or_default())?;
                        if let Some(key) = key
                            && !map.contains_key(key)
                        {
                            self.path.push_required(key);
                            self.violated("required", || "the field is required".to_owned());
                            self.path.pop();
                        }
                    }
                }
                for (key, value) in map {
                    self.budget.charge_iteration(key)?;
                    if let Some(field) = of_field(schema, key) {
                        self.path.push_field(schema, key);
                        self.value(field, value)?;
                        self.path.pop();
                    }
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
        self.alternatives(schema, value)
    }

    /// Returns `true` if `value` is one of the `allowed` values.
    fn is_one_of(&mut self, allowed: &[Value], value: &Value) -> Result<bool, BudgetExceeded> {
        for one in allowed {
            if same(one, value, self.budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn has_type(&mut self, schema: &Value, value: &Value) -> Result<bool, BudgetExceeded> {
        if value.is_null() && flag(schema, "nullable") {
            // If the schema has an `enum`, the `enum` must contain null too.
            return match schema.get("enum").and_then(Value::as_array) {
                Some(listed) => Ok(!self.is_one_of(listed, value)?),
                None => Ok(false),
            };
        }
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if is_whole(number) => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let (fits, wanted) = if flag(schema, "x-kubernetes-int-or-string") {
            (matches!(kind, "integer" | "string"), "integer or string")
        } else if text(schema, FORMAT) == Some("quantity") {
            (
                matches!(kind, "integer" | "number" | "string"),
                "a quantity",
            )
        } else {
            match text(schema, "type") {
                None | Some("") => (true, ""),
                Some("number") => (matches!(kind, "integer" | "number"), "number"),
                Some(wanted) => (kind == wanted, wanted),
            }
        };
        if !fits {
            self.violated("type", || {
                format!("{} is of type {kind}, but must be {wanted}", brief(value))
            });
        }
        Ok(fits)
    }

    fn string(&mut self, schema: &Value, value: &str) -> Result<(), BudgetExceeded> {
        self.budget.charge_bytes(value.len())?;
        let length = value.chars().count();
        self.count(schema, ("maxLength", "minLength"), length, "characters");
        if let Some(pattern) = text(schema, "pattern") {
            let is_limited = self.patterns.is_limited();
            let compiled = self.patterns.get(pattern, self.budget)?;
            if let (Ok(compiled), true) = (compiled, is_limited) {
                self.budget.charge_match(value.len(), compiled.size())?;
            }
            let problem = match compiled {
                Ok(compiled) if compiled.matches(value) => None,
                Ok(_) => Some(None),
                // The check of the CRD reports the invalid pattern.
                Err(PatternError::Bad(_)) if !is_limited => None,
                Err(PatternError::Bad(why) | PatternError::Unknown(why)) => Some(Some(why.clone())),
            };
            if let Some(unknown) = problem {
                self.add("pattern", unknown.is_some(), &|| match &unknown {
                    None => format!("{} does not match `{pattern}`", brief(&value.into())),
                    Some(why) => format!("the pattern `{pattern}`, because {why}"),
                });
            }
        }
        match text(schema, FORMAT) {
            Some("quantity") if !formats::is_quantity(value) => self.violated(FORMAT, || {
                format!(
                    "{} is not a quantity, such as 100m, 1.5 or 2Gi",
                    brief(&value.into())
                )
            }),
            Some("base64") if !formats::is_base64(value) => {
                self.violated(FORMAT, || format!("{} is not base64", brief(&value.into())));
            }
            _ => {}
        }
        if let Some(format) = text(schema, "format")
            && matches!(text(schema, "type"), None | Some("" | "string"))
        {
            // The check reads the name of the format, and again the text.
            self.budget.charge_bytes(format.len())?;
            self.budget.charge_bytes(value.len())?;
            let holds = formats::holds(format, value);
            if holds != Some(true) {
                self.add("format", holds.is_none(), &|| match holds {
                    Some(_) => {
                        format!("{} is not of the format {format}", brief(&value.into()))
                    }
                    None => format!("the format {format}"),
                });
            }
        }
        Ok(())
    }

    fn number(&mut self, schema: &Value, value: &Number) {
        let number = value.as_f64().unwrap_or(f64::NAN);
        let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
        if let Some(most) = bound("maximum") {
            let strict = flag(schema, "exclusiveMaximum");
            if number > most || (strict && number >= most) {
                let than = if strict { "not less than" } else { "more than" };
                self.violated("maximum", || format!("{value} is {than} {most}"));
            }
        }
        if let Some(least) = bound("minimum") {
            let strict = flag(schema, "exclusiveMinimum");
            if number < least || (strict && number <= least) {
                let than = if strict { "not more than" } else { "less than" };
                self.violated("minimum", || format!("{value} is {than} {least}"));
            }
        }
        if let Some(factor) = bound("multipleOf").filter(|factor| *factor > 0.0) {
            let times = number / factor;
            if (times - times.round()).abs() > 1e-9 {
                self.violated("multipleOf", || {
                    format!("{value} is not a multiple of {factor}")
                });
            }
        }
        if text(schema, "type") == Some("integer")
            && text(schema, "format") == Some("int32")
            && value
                .as_i64()
                .is_none_or(|whole| i32::try_from(whole).is_err())
        {
            self.violated("format", || format!("{value} does not fit into 32 bits"));
        }
    }

    fn count(
        &mut self,
        schema: &Value,
        (most, least): (&'static str, &'static str),
        count: usize,
        what: &str,
    ) {
        let bound = |key: &str| schema.get(key).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(limit) = bound(most).filter(|limit| count > *limit) {
            self.violated(most, || {
                format!("{count} {what} exceed the limit of {limit}")
            });
        }
        if let Some(limit) = bound(least).filter(|limit| count < *limit) {
            self.violated(least, || {
                format!("{count} {what} are fewer than the required {limit}")
            });
        }
    }

    fn alternatives(&mut self, schema: &'v Value, value: &'v Value) -> Result<(), BudgetExceeded> {
        let branches = |key: &str| schema.get(key).and_then(Value::as_array);
        for branch in branches("allOf").into_iter().flatten() {
            self.value(branch, value)?;
        }
        if let Some(any) = branches("anyOf")
            && self.count_satisfied(any, value)? == 0
        {
            self.violated("anyOf", || {
                format!("{} matches none of the alternatives (anyOf)", brief(value))
            });
        }
        if let Some(one) = branches("oneOf") {
            let holding = self.count_satisfied(one, value)?;
            if holding != 1 {
                self.violated("oneOf", || {
                    format!(
                        "{} matches {holding} of the alternatives, but must match exactly one (oneOf)",
                        brief(value)
                    )
                });
            }
        }
        if let Some(not) = schema.get("not")
            && self.count_satisfied(std::slice::from_ref(not), value)? == 1
        {
            self.violated("not", || {
                format!(
                    "{} matches the schema that is forbidden (not)",
                    brief(value)
                )
            });
        }
        Ok(())
    }

    /// Returns the number of branches that `value` satisfies.
    fn count_satisfied(
        &mut self,
        branches: &'v [Value],
        value: &'v Value,
    ) -> Result<usize, BudgetExceeded> {
        let mut holding = 0;
        self.alternatives += 1;
        for branch in branches {
            let before = self.violations;
            self.value(branch, value)?;
            holding += usize::from(self.violations == before);
            self.violations = before;
        }
        self.alternatives -= 1;
        Ok(holding)
    }
}

fn is_whole(number: &Number) -> bool {
    number.is_i64() || number.is_u64()
}

/// Returns `true` if two JSON values are equal. `1` and `1.0` are equal, except in lists and maps.
fn same(
    left: &Value,
    right: &Value,
    budget: &mut ValidationBudget<'_>,
) -> Result<bool, BudgetExceeded> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            budget.charge_comparison()?;
            Ok(left.as_f64() == right.as_f64())
        }
        _ => equals(left, right, budget),
    }
}

/// Like `left == right`. A list or map can be compared completely with each value of an
/// enumeration, so each compared node is charged.
fn equals(
    left: &Value,
    right: &Value,
    budget: &mut ValidationBudget<'_>,
) -> Result<bool, BudgetExceeded> {
    budget.charge_comparison()?;
    match (left, right) {
        (Value::String(left), Value::String(right)) if left.len() == right.len() => {
            budget.charge_bytes(left.len())?;
            Ok(left == right)
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            for (left, right) in left.iter().zip(right) {
                if !equals(left, right, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Object(left), Value::Object(right)) if left.len() == right.len() => {
            for (key, left) in left {
                budget.charge_iteration(key)?;
                let Some(right) = right.get(key) else {
                    return Ok(false);
                };
                if !equals(left, right, budget)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        // Values of other types, and texts, lists and maps of different lengths.
        _ => Ok(left == right),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{MAX_STEPS, Problem, Violation, compare, path::Path, violations};
    use super::{BudgetExceeded, Patterns, Validation, ValidationBudget};

    /// Returns the first `most` violations, with the budget of one validation.
    fn violations_of(
        schema: &serde_json::Value,
        value: &serde_json::Value,
        most: usize,
    ) -> Result<Vec<Violation>, BudgetExceeded> {
        let limits = (
            &mut Patterns::limited(),
            &mut ValidationBudget::without_deadline(MAX_STEPS),
        );
        violations(schema, value, limits, most)
    }

    fn messages_of(schema: &serde_json::Value, value: &serde_json::Value) -> Vec<String> {
        compare(schema, value, "spec")
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect()
    }

    #[test]
    fn reports_all_problems_with_paths() {
        let schema = json!({"type": "object", "required": ["name", "size"], "properties": {
            "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
            "size": {"type": "integer", "minimum": 1, "format": "int32"},
            "mode": {"type": "string", "enum": ["a", "b"]},
            "ports": {"type": "array", "minItems": 1, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["n"],
                "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "either": {"x-kubernetes-int-or-string": true},
            "one": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}], "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        let value = json!({"name": "ABCD", "mode": "c", "ports": [{"n": 1}, {"n": 1}], "tags": ["x", "x"], "either": true,
            "one": {"a": "x", "b": "y"}, "labels": {"a.b/c": 1}});
        assert_eq!(
            messages_of(&schema, &value),
            [
                "spec.size: the field is required",
                "spec.either: true is of type boolean, but must be integer or string",
                "spec.labels[a.b/c]: 1 is of type integer, but must be string",
                "spec.mode: \"c\" is not one of \"a\", \"b\"",
                "spec.name: 4 characters exceed the limit of 3",
                "spec.name: \"ABCD\" does not match `^[a-z]+$`",
                "spec.one: {\"a\":\"x\",\"b\":\"y\"} matches 2 of the alternatives, but must match exactly one (oneOf)",
                "spec.ports[1]: an item with the key {\"n\":1} appears twice",
                "spec.tags[1]: the item \"x\" appears twice",
            ]
        );
    }

    #[test]
    fn nested_alternatives_stop_at_the_step_limit() {
        let branch = json!({"anyOf": vec![json!({"pattern": "x"}); 300]});
        let schema = json!({"type": "array", "items": {"type": "string", "allOf": [branch]}});
        let (value, mut patterns) = (json!(vec!["y"; 300]), Patterns::default());
        let mut problems: Vec<Problem> = Vec::new();
        let budget = &mut ValidationBudget::without_deadline(10_000);
        let path = Path::new("spec");
        let mut walk = Validation::new(path, &mut patterns, budget, &mut problems);
        assert_eq!(walk.value(&schema, &value), Err(BudgetExceeded));
    }

    #[test]
    fn incomplete_validation_is_reported() {
        let schema = json!({"allOf": vec![json!({}); 300]});
        let problems = compare(&schema, &json!("a".repeat(1 << 20)), "spec");
        let [problem] = problems.as_slice() else {
            panic!("{problems:?}");
        };
        assert!(problem.path == "spec" && problem.unchecked, "{problem:?}");
    }

    fn is_too_large(schema: &serde_json::Value, value: &serde_json::Value) -> bool {
        violations_of(schema, value, 1_000).is_err()
    }

    /// Without the limits, this test would compare 100 billion values.
    #[test]
    fn comparisons_with_long_enumerations_are_limited() {
        let mut numbers: Vec<_> = (0..300_000).map(|number| json!(number)).collect();
        numbers.push(json!(null));
        let items = json!({"items": {"nullable": true, "enum": numbers}});
        assert!(is_too_large(&items, &json!(vec![json!(null); 300_000])));
        // All lists have the same beginning.
        let list = |last: usize| {
            let mut list = vec![json!(0); 200];
            list.push(json!(last));
            json!(list)
        };
        let lists: Vec<_> = (0..5_000).map(list).collect();
        let schema = json!({"items": {"enum": lists}});
        assert!(is_too_large(&schema, &json!(vec![list(5_000); 5_000])));
        let ordinary = json!({"items": {"nullable": true, "enum": ["a", ["b"], null]}});
        let value = json!(["a", ["b"], null]);
        assert_eq!(violations_of(&ordinary, &value, 20), Ok(Vec::new()));
    }

    #[test]
    fn required_fields_of_many_items_are_limited() {
        let names: Vec<_> = (0..45_000)
            .map(|number| format!("field-{number}"))
            .collect();
        let schema = json!({"items": {"not": {"required": names}}});
        assert!(is_too_large(&schema, &json!(vec![json!({}); 40_000])));
    }

    #[test]
    fn lists_and_maps_of_enumerations_are_compared_exactly() {
        let schema = json!({"items": {"enum": [1, [1, "a"], {"a": [1], "b": "c"}]}});
        let same = json!([1, 1.0, [1, "a"], {"a": [1], "b": "c"}]);
        assert_eq!(violations_of(&schema, &same, 20), Ok(Vec::new()));
        let others = json!([2, "1", [1.0, "a"], [1, "b"], [1], {"a": [2], "b": "c"}, {"a": [1], "c": "c"}, {}]);
        let found = violations_of(&schema, &others, 20).map(|found| found.len());
        assert_eq!(found, Ok(8));
    }

    /// Without the limits, this test would read 900 GB of patterns and names of formats.
    #[test]
    fn length_of_patterns_and_formats_counts_for_each_text() {
        let texts = json!(vec![""; 300_000]);
        for keyword in ["pattern", "format"] {
            let schema = json!({"items": {keyword: "x".repeat(3 << 20)}});
            assert!(is_too_large(&schema, &texts), "{keyword}");
        }
    }

    #[test]
    fn length_of_a_text_counts_for_each_pattern() {
        let branches = |count: usize| json!({"allOf": vec![json!({"pattern": "^a"}); count]});
        let text = json!("a".repeat(1 << 20));
        assert!(is_too_large(&branches(20), &text));
        assert_eq!(violations_of(&branches(2), &text, 20), Ok(Vec::new()));
        // The plugin has no such limit.
        assert!(compare(&branches(20), &text, "").is_empty());
    }

    #[test]
    fn violations_contain_no_part_of_the_object() {
        let schema = json!({"type": "object", "required": ["size"], "properties": {
            "mode": {"enum": ["a", "b"]},
            "labels": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-z]+$"}},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string", "maxLength": 3}},
            "one": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "look": {"pattern": "("},
        }});
        let secret = "S3cret";
        let value = json!({
            "mode": secret, "labels": {secret: secret}, "tags": [secret, secret],
            "one": {secret: secret}, "look": secret,
        });
        let found = violations_of(&schema, &value, 20).unwrap();
        let found: Vec<String> = found
            .iter()
            .map(|one| format!("{} {} {}", one.field, one.keyword, one.unchecked))
            .collect();
        assert_eq!(
            found,
            [
                "^.size required false",
                "^.labels[*] pattern false",
                "^.look pattern true",
                "^.mode enum false",
                "^.one oneOf false",
                "^.tags[*] maxLength false",
                "^.tags[*] maxLength false",
                "^.tags[*] x-kubernetes-list-type false",
            ]
        );
        let first = violations_of(&schema, &value, 2).unwrap();
        assert_eq!(first.len(), 2);
    }
}
