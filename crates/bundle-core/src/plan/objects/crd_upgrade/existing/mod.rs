//! Validation of the custom resources on the cluster against a new CustomResourceDefinition. The
//! validation is necessary if the comparison of the definitions does not prove that valid objects
//! stay valid. There are two such cases: an exception from a check, and new fields of objects that
//! keep unknown fields. CEL rules are not evaluated. Results contain no values of objects and no
//! keys of maps.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use super::steps::{ComparisonSteps, TooManySteps};
use super::versions::{
    MAX_VERSIONS, is_served, root, strategy, text, version, version_count, versions,
};
use super::{CrdCheck, CrdException, is_disabled, schema};
use crate::structural::{
    BudgetExceeded, DefaultsError, MAX_STEPS, Patterns, ValidationBudget, Violation, fill_within,
    prune_within, violations,
};
use crate::text::bounded;

/// Number of objects on one page of a list.
pub const PAGE_SIZE: u32 = 500;

/// Maximum number of listed objects in a message.
const MAX_NAMED: usize = 3;
/// Maximum number of violations of one object, or of all unnamed objects, in a message.
const MAX_VIOLATIONS: usize = 5;
/// Maximum length of the text of a violation, in bytes.
const MAX_TEXT: usize = 256;
/// Maximum number of JSON values that the defaults of the schema add to one object.
const MAX_DEFAULTS: usize = 100_000;

/// Limits for the validation of custom resources, for all definitions of one content together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValidationLimits {
    /// Maximum number of objects.
    pub objects: u64,
    /// Maximum size of the objects in bytes.
    pub bytes: u64,
    /// Maximum duration of the validation.
    pub time: Duration,
}

impl ValidationLimits {
    /// Limits of the pod and of the plugin.
    pub const DEFAULT: Self = Self {
        objects: 10_000,
        bytes: 64 << 20,
        time: Duration::from_secs(30),
    };
}

/// Reason why not all objects were validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unvalidated {
    /// More objects exist than this number.
    Objects(u64),
    /// The objects have more bytes than this number.
    Bytes(u64),
    /// The validation did not end within this time.
    Time(Duration),
    /// The API server serves no version of the definition, so the objects cannot be read.
    NotServed,
    /// A definition has more versions than this number.
    Versions(usize),
    /// The comparison of the definitions needs more than [`super::MAX_STEPS`] steps.
    Steps,
    /// The validation of one object against one version needs more than this number of steps.
    ObjectSteps(u64),
}

impl From<TooManySteps> for Unvalidated {
    fn from(_: TooManySteps) -> Self {
        Self::Steps
    }
}

impl fmt::Display for Unvalidated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Objects(most) => write!(f, "more than {most} objects exist"),
            Self::Bytes(most) => write!(f, "the objects have more than {} MiB", most >> 20),
            Self::Time(most) => write!(f, "the validation did not end within {} s", most.as_secs()),
            Self::NotServed => f.write_str("no version of the definition is served"),
            Self::Versions(most) => write!(f, "the definition has more than {most} versions"),
            Self::Steps => fmt::Display::fmt(&TooManySteps, f),
            Self::ObjectSteps(most) => {
                write!(
                    f,
                    "the validation of an object needs more than {most} steps"
                )
            }
        }
    }
}

/// Objects to read, and the versions of the new definition in which they must be valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExistingObjectList {
    /// Version of the live definition in which the objects are read.
    pub read: String,
    /// Versions of the new definition in which the objects must be valid.
    pub versions: Vec<String>,
}

/// Returns the lists of objects that must be validated before the `new` definition replaces the
/// `live` definition. The result is empty if all valid objects stay valid, or if the annotation
/// disables the checks. Fails if the definitions have too many versions or need more than
/// [`super::MAX_STEPS`] steps.
pub fn lists(live: &Value, new: &Value) -> Result<Vec<ExistingObjectList>, Unvalidated> {
    if is_disabled(new) {
        return Ok(Vec::new());
    }
    let (live, new) = (&live["spec"], &new["spec"]);
    if version_count(live, new) > MAX_VERSIONS {
        return Err(Unvalidated::Versions(MAX_VERSIONS));
    }
    let steps = &mut ComparisonSteps::default();
    let served = || versions(live).filter(|version| is_served(version));
    let storage = served().find(|version| version["storage"] == true);
    let storage = storage.or_else(|| served().next());
    let mut lists: Vec<ExistingObjectList> = Vec::new();
    for wanted in versions(new).filter(|version| is_served(version)) {
        let name = text(wanted, "name");
        let before = version(live, name);
        let is_needed = match before {
            Some(before) if is_served(before) => may_reject(before, wanted, steps)?,
            // A conversion webhook converts the stored objects to the new version. Therefore the
            // stored form of the objects is not validated.
            _ if strategy(new) != "None" => false,
            _ => may_reject_any(versions(live), wanted, steps)?,
        };
        if !is_needed {
            continue;
        }
        let read = before.filter(|before| is_served(before)).or(storage);
        let read = text(read.ok_or(Unvalidated::NotServed)?, "name");
        match lists.iter_mut().find(|list| list.read == read) {
            Some(list) => list.versions.push(name.to_owned()),
            None => lists.push(ExistingObjectList {
                read: read.to_owned(),
                versions: vec![name.to_owned()],
            }),
        }
    }
    Ok(lists)
}

/// If an exception disables the validation of the objects of this definition, returns the reason of
/// the exception.
pub fn exception<'e>(crd: &str, exceptions: &'e [CrdException]) -> Option<&'e str> {
    super::exception(crd, CrdCheck::ExistingCustomResources, exceptions)
}

/// Returns true if version `new` may reject an object that one of the versions `before` accepts.
fn may_reject_any<'v>(
    before: impl Iterator<Item = &'v Value>,
    new: &Value,
    steps: &mut ComparisonSteps,
) -> Result<bool, TooManySteps> {
    for version in before {
        if may_reject(version, new, steps)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns true if version `new` may reject an object that version `before` accepts.
fn may_reject(
    before: &Value,
    new: &Value,
    steps: &mut ComparisonSteps,
) -> Result<bool, TooManySteps> {
    let (old, new) = (root(before), root(new));
    let mut is_unsafe = false;
    schema::compare((old, new), steps, &mut |_, _| is_unsafe = true)?;
    Ok(is_unsafe || has_new_field_in_open_object(old, new))
}

/// Returns true if the `new` schema names a field of an object that keeps unknown fields. Existing
/// objects can have the field with any value. The recursion is limited, because the nesting of
/// parsed JSON is limited.
fn has_new_field_in_open_object(old: &Value, new: &Value) -> bool {
    if !old.is_object() || !new.is_object() {
        return false;
    }
    let keeps_unknown = old["x-kubernetes-preserve-unknown-fields"] == true;
    let fields = new["properties"].as_object().into_iter().flatten();
    let mut fields = fields.map(|(name, after)| (old["properties"].get(name), after));
    fields.any(|(before, after)| match before {
        Some(before) => has_new_field_in_open_object(before, after),
        None => keeps_unknown,
    }) || ["items", "additionalProperties"]
        .into_iter()
        .any(|key| has_new_field_in_open_object(&old[key], &new[key]))
}

/// Object with violations.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InvalidObject {
    /// `namespace/name`, or the name of a cluster-scoped object.
    name: String,
    version: String,
    violations: String,
}

/// Validation of the custom resources of one definition.
pub struct ExistingObjects<'a> {
    new: &'a Value,
    patterns: Patterns,
    named: Vec<InvalidObject>,
    /// Number of invalid objects whose names may be part of messages.
    invalid: u64,
    /// Number of invalid objects whose names must not be part of messages.
    unnamed: u64,
    /// Violations of the objects whose names must not be part of messages, with their versions.
    of_unnamed: BTreeSet<(String, String)>,
}

impl<'a> ExistingObjects<'a> {
    /// Returns a validation against the `new` definition, before any object is added.
    pub fn new(new: &'a Value) -> Self {
        Self {
            new,
            patterns: Patterns::limited(),
            named: Vec::new(),
            invalid: 0,
            unnamed: 0,
            of_unnamed: BTreeSet::new(),
        }
    }

    /// Validates one object against these versions of the new definition. Messages contain the name
    /// of the object only if `can_be_named` is true. The validation can take long, so `check_time`
    /// is called before each version and every few thousand steps. If `check_time` fails, the
    /// validation ends with its error. It also ends with an error if one version needs too many
    /// steps: it is unknown whether the object is valid.
    pub fn add(
        &mut self,
        object: &Value,
        versions: &[String],
        can_be_named: bool,
        mut check_time: impl FnMut() -> Result<(), Unvalidated>,
    ) -> Result<(), Unvalidated> {
        for version in versions {
            check_time()?;
            let found = self.violations(object, version, &mut check_time)?;
            if !found.is_empty() {
                self.record(object, (version.as_str(), &found), can_be_named);
                break;
            }
        }
        Ok(())
    }

    /// Records that an object is invalid in this version.
    fn record(
        &mut self,
        object: &Value,
        (version, found): (&str, &[Violation]),
        can_be_named: bool,
    ) {
        let texts = found.iter().map(|violation| {
            let Violation {
                field,
                keyword,
                unchecked,
            } = violation;
            let text = if *unchecked {
                format!("{field}: {keyword} cannot be evaluated")
            } else {
                format!("{field}: {keyword}")
            };
            bounded(&text, MAX_TEXT)
        });
        if !can_be_named {
            self.unnamed += 1;
            for text in texts {
                if self.of_unnamed.len() < MAX_VIOLATIONS {
                    self.of_unnamed.insert((version.to_owned(), text));
                }
            }
            return;
        }
        self.invalid += 1;
        if self.named.len() < MAX_NAMED {
            let metadata = &object["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            self.named.push(InvalidObject {
                name: match metadata["namespace"].as_str() {
                    Some(namespace) => format!("{namespace}/{name}"),
                    None => name.to_owned(),
                },
                version: version.to_owned(),
                violations: texts.collect::<Vec<String>>().join(", "),
            });
        }
    }

    /// Validates an object against the version `name`, and returns the violations. Fails if
    /// `check_time` fails or the validation needs too many steps.
    fn violations(
        &mut self,
        object: &Value,
        name: &str,
        check_time: &mut dyn FnMut() -> Result<(), Unvalidated>,
    ) -> Result<Vec<Violation>, Unvalidated> {
        let mut late = None;
        let mut is_late = || {
            late = check_time().err();
            late.is_some()
        };
        let mut budget = ValidationBudget::new(MAX_STEPS, &mut is_late);
        let found = self.violations_within(object, name, &mut budget);
        found.map_err(|BudgetExceeded| late.unwrap_or(Unvalidated::ObjectSteps(MAX_STEPS)))
    }

    /// Validates an object in the form in which the API server would return the object, and returns
    /// the violations.
    fn violations_within(
        &mut self,
        object: &Value,
        name: &str,
        budget: &mut ValidationBudget<'_>,
    ) -> Result<Vec<Violation>, BudgetExceeded> {
        let schema = version(&self.new["spec"], name).map_or(&Value::Null, root);
        let mut object = object.clone();
        prune_within(schema, &mut object, true, budget)?;
        let mut defaults = MAX_DEFAULTS;
        match fill_within(schema, &mut object, &mut defaults, budget) {
            Ok(()) => {}
            Err(DefaultsError::Budget(exceeded)) => return Err(exceeded),
            Err(DefaultsError::TooLarge) => {
                return Ok(vec![Violation {
                    field: "^".to_owned(),
                    keyword: "default",
                    unchecked: true,
                }]);
            }
        }
        let limits = (&mut self.patterns, budget);
        let mut found = violations(schema, &object, limits, MAX_VIOLATIONS)?;
        found.dedup();
        Ok(found)
    }

    /// Returns true if no object is invalid.
    pub fn is_valid(&self) -> bool {
        self.invalid == 0 && self.unnamed == 0
    }

    /// Returns the message about the invalid objects of this definition, in the words of RukPak.
    pub fn message(&self, crd: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        for object in &self.named {
            parts.push(format!(
                "existing custom object {} failed validation for new schema version {}: {}",
                object.name, object.version, object.violations
            ));
        }
        let more = self.invalid - self.named.len() as u64;
        if more > 0 {
            parts.push(format!("and {more} more existing custom objects"));
        }
        if self.unnamed > 0 {
            let mut versions: Vec<&str> = self
                .of_unnamed
                .iter()
                .map(|(version, _)| version.as_str())
                .collect();
            versions.dedup();
            let texts: Vec<&str> = self
                .of_unnamed
                .iter()
                .map(|(_, text)| text.as_str())
                .collect();
            parts.push(format!(
                "existing custom objects in other namespaces ({}) failed validation for new schema version {}: {}",
                self.unnamed,
                versions.join(", "),
                texts.join(", ")
            ));
        }
        format!(
            "error validating existing CRs against new CRD's schema for {crd:?}: {}",
            parts.join("; ")
        )
    }
}

#[cfg(test)]
mod tests;
