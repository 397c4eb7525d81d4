//! Safety of an upgrade of a CustomResourceDefinition: the new definition is compared with the
//! definition on the cluster. Names and texts of the checks are the same as in RukPak and OLM. A
//! change that no check covers is unsafe. [`existing`] validates the custom resources on the
//! cluster. [`guard`] decides about updates by other clients.

mod constraints;
pub mod existing;
pub mod guard;
mod schema;
mod steps;
mod values;
mod versions;

use std::collections::BTreeMap;

use serde_json::Value;

pub use crate::review::deployment::{CrdCheck, CrdException};
use crate::text::bounded;
pub use steps::MAX_STEPS;

/// Annotation of RukPak on a new definition. The value `false` disables the checks for this
/// definition.
pub const ANNOTATION: &str = "core.rukpak.io/safe-crd-upgrade-validation";
/// Value of [`ANNOTATION`] that disables the checks.
pub const DISABLED: &str = "false";

/// Maximum number of listed failures of one CustomResourceDefinition.
const MAX_FAILURES: usize = 20;
/// Maximum length of the text of a failure, in bytes.
const MAX_TEXT: usize = 512;

/// Unsafe change of a CustomResourceDefinition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrdFailure {
    /// Check that found the change.
    pub check: CrdCheck,
    /// Description of the change.
    pub text: String,
}

/// Result of the checks of one CustomResourceDefinition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CrdVerdict {
    /// Unsafe changes in the order of checks, versions and fields; at most [`MAX_FAILURES`].
    failures: Vec<CrdFailure>,
    /// Number of unsafe changes that are not listed.
    unlisted: usize,
    /// Checks whose unsafe changes an exception allows, each with the reason of the exception.
    excepted: BTreeMap<CrdCheck, String>,
}

impl CrdVerdict {
    /// Returns true if no unsafe change was found, or if exceptions allow all unsafe changes.
    pub fn is_safe(&self) -> bool {
        self.failures.is_empty()
    }

    /// Returns the checks of the listed failures. Each check occurs once in the result.
    pub fn checks(&self) -> Vec<CrdCheck> {
        let mut checks: Vec<CrdCheck> = self.failures.iter().map(|found| found.check).collect();
        checks.sort();
        checks.dedup();
        checks
    }

    /// Returns the checks whose failures an exception allows, with the reason of the exception.
    pub fn excepted(&self) -> impl Iterator<Item = (CrdCheck, &str)> {
        let excepted = self.excepted.iter();
        excepted.map(|(check, reason)| (*check, reason.as_str()))
    }

    /// Returns one sentence for each group of checks that failed.
    pub fn message(&self, crd: &str) -> String {
        let mut sentences: Vec<String> = Vec::new();
        let mut group = None;
        for failure in &self.failures {
            if group == Some(failure.check.group()) {
                sentences.push(failure.text.clone());
                continue;
            }
            group = Some(failure.check.group());
            sentences.push(format!(
                "CustomResourceDefinition {crd} failed upgrade safety validation. {:?} validation failed: {}",
                failure.check.group().name(),
                failure.text
            ));
        }
        if self.unlisted > 0 {
            sentences.push(format!("and {} more", self.unlisted));
        }
        sentences.join("; ")
    }
}

/// Compares the `new` definition with the definition `live` on the cluster. Each of `exceptions`
/// allows the failures of one check for one definition. [`ANNOTATION`] on the new definition
/// disables all checks. If the definitions have too many versions or need more than [`MAX_STEPS`]
/// steps, the result contains a failure of check `UnknownChange`.
pub fn compare(live: &Value, new: &Value, exceptions: &[CrdException]) -> CrdVerdict {
    let crd = new["metadata"]["name"].as_str().unwrap_or_default();
    let mut failures = Failures {
        exceptions: exceptions
            .iter()
            .filter(|exception| exception.crd == crd)
            .map(|exception| (exception.check, exception.reason.as_str()))
            .collect(),
        found: CrdVerdict::default(),
    };
    if !is_disabled(new) {
        versions::compare(
            crd,
            &live["spec"],
            &live["status"],
            &new["spec"],
            &mut failures,
        );
    }
    failures.found
}

/// Returns the reason of the exception from `check` for this definition, if one exists.
fn exception<'e>(crd: &str, check: CrdCheck, exceptions: &'e [CrdException]) -> Option<&'e str> {
    let mut exceptions = exceptions.iter();
    let found = exceptions.find(|exception| exception.crd == crd && exception.check == check);
    found.map(|exception| exception.reason.as_str())
}

/// Returns true if the annotation on the new definition disables the checks.
pub fn is_disabled(new: &Value) -> bool {
    new["metadata"]["annotations"][ANNOTATION].as_str() == Some(DISABLED)
}

/// Failures that were found so far.
struct Failures<'a> {
    exceptions: BTreeMap<CrdCheck, &'a str>,
    found: CrdVerdict,
}

impl Failures<'_> {
    /// Adds a failure. If an exception allows the failure, only the exception is recorded. `text`
    /// is called only if the failure is listed.
    fn add(&mut self, check: CrdCheck, text: impl FnOnce() -> String) {
        let excepted = self.exceptions.get_key_value(&check);
        if let Some((check, reason)) =
            excepted.or_else(|| self.exceptions.get_key_value(&check.group()))
        {
            let reason = || bounded(reason, MAX_TEXT);
            self.found.excepted.entry(*check).or_insert_with(reason);
        } else if self.found.failures.len() < MAX_FAILURES {
            let text = bounded(&text(), MAX_TEXT);
            self.found.failures.push(CrdFailure { check, text });
        } else {
            self.found.unlisted += 1;
        }
    }
}

#[cfg(test)]
mod tests;
