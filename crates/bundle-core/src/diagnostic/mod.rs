//! Findings: stable code, location, message and hint. The CLI and the webhook only render findings.

mod catalog;
mod finding;
mod rendered;

pub use catalog::{Code, Outcome, all_codes, codes};
pub use finding::{Finding, FindingLocation, Findings, Severity};
pub use rendered::rendered;
