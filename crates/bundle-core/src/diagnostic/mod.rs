//! Findings: stable code, location, message and hint. The CLI and the webhook only render them.

mod catalog;
mod finding;

pub use catalog::{Code, Outcome, all_codes, codes};
pub use finding::{Finding, Findings, Place, Severity};
