//! Validation of an object against a structural schema, by the rules of the API server: unknown
//! fields, defaults, types, limits, lists.

mod budget;
mod defaults;
mod formats;
mod lists;
mod path;
mod pattern;
mod patterns;
mod unknown;
mod values;

use serde_json::Value;

pub(crate) use crate::field_path::{child, item};
pub(crate) use budget::{BudgetExceeded, MAX_STEPS, ValidationBudget};
pub(crate) use defaults::{DefaultsError, fill, fill_within};
pub(crate) use pattern::{Pattern, PatternError};
pub(crate) use patterns::Patterns;
pub(crate) use unknown::{find as unknown_fields, prune, prune_within};

use path::Path;

/// Message about a validation that exceeds the number of steps.
const TOO_LARGE: &str = "the object and its schema are too large for a complete validation";

/// Problem with a field of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Path of the field, in the form of Kubernetes messages.
    pub(crate) path: String,
    /// Message, without the path.
    pub(crate) message: String,
    /// `true` if the field could not be checked.
    pub(crate) unchecked: bool,
}

impl Problem {
    pub(crate) fn new(path: &str, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
            unchecked: false,
        }
    }

    pub(crate) fn unchecked(path: &str, message: impl Into<String>) -> Self {
        Self {
            unchecked: true,
            ..Self::new(path, message)
        }
    }
}

/// Violation of a schema, without any part of the object: neither values nor keys of maps.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Path in the schema: `^` is the root, and `[*]` is any item of a list or any entry of a map.
    pub(crate) field: String,
    /// Violated keyword of the schema.
    pub(crate) keyword: &'static str,
    /// `true` if the field could not be checked.
    pub(crate) unchecked: bool,
}

/// Receiver of the violations of one object.
trait Report {
    /// Adds a violation. `message` describes the value.
    fn add(
        &mut self,
        path: &Path<'_>,
        keyword: &'static str,
        unchecked: bool,
        message: &dyn Fn() -> String,
    );
}

impl Report for Vec<Problem> {
    fn add(
        &mut self,
        path: &Path<'_>,
        _keyword: &'static str,
        unchecked: bool,
        message: &dyn Fn() -> String,
    ) {
        self.push(Problem {
            path: path.in_object(),
            message: message(),
            unchecked,
        });
    }
}

/// Receiver that stores only the first violations.
struct FirstViolations {
    found: Vec<Violation>,
    most: usize,
}

impl Report for FirstViolations {
    fn add(
        &mut self,
        path: &Path<'_>,
        keyword: &'static str,
        unchecked: bool,
        _message: &dyn Fn() -> String,
    ) {
        if self.found.len() < self.most {
            self.found.push(Violation {
                field: path.in_schema(),
                keyword,
                unchecked,
            });
        }
    }
}

/// Validates a value whose defaults are set. Returns all violations of the schema, except
/// violations of CEL rules.
pub(crate) fn compare(schema: &Value, value: &Value, path: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let limits = (
        &mut Patterns::default(),
        &mut ValidationBudget::without_deadline(MAX_STEPS),
    );
    let walked = walk((schema, value), Path::new(path), limits, &mut problems);
    if walked.is_err() {
        problems.push(Problem::unchecked(path, TOO_LARGE));
    }
    problems
}

/// Validates a value whose defaults are set. Returns the first `most` violations of the schema,
/// except violations of CEL rules. A pattern that cannot be evaluated counts as a violation. If the
/// budget is exceeded, it is unknown whether the value is valid.
pub(crate) fn violations(
    schema: &Value,
    value: &Value,
    limits: (&mut Patterns, &mut ValidationBudget<'_>),
    most: usize,
) -> Result<Vec<Violation>, BudgetExceeded> {
    let mut first = FirstViolations {
        found: Vec::new(),
        most,
    };
    walk((schema, value), Path::new(""), limits, &mut first)?;
    Ok(first.found)
}

fn walk<'v>(
    (schema, value): (&'v Value, &'v Value),
    path: Path<'v>,
    (patterns, budget): (&mut Patterns, &mut ValidationBudget<'_>),
    report: &mut dyn Report,
) -> Result<(), BudgetExceeded> {
    let mut walk = values::Validation::new(path, patterns, &mut *budget, &mut *report);
    walk.value(schema, value)?;
    let mut path = walk.finish();
    lists::find((schema, value), &mut path, budget, report)
}

/// Returns a text field of a schema.
pub(crate) fn text<'a>(schema: &'a Value, key: &str) -> Option<&'a str> {
    schema.get(key).and_then(Value::as_str)
}

/// Returns a boolean field of a schema; `false` if it is absent.
pub(crate) fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or_default()
}

/// Returns the schema of a field: from `properties`, or `additionalProperties`.
pub(crate) fn of_field<'a>(schema: &'a Value, key: &str) -> Option<&'a Value> {
    let own = schema.get("properties").and_then(|fields| fields.get(key));
    own.or_else(|| {
        schema
            .get("additionalProperties")
            .filter(|all| all.is_object())
    })
}

/// Describes a value in a few words.
pub(crate) fn brief(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    let short: String = text.chars().take(57).collect();
    format!("{short}...")
}
