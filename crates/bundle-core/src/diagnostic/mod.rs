//! What we tell people: findings with a stable code, a place, a message and a hint.
//! Not here: colours, exit (kubectl-bundle::report) or HTTP (webhook::admission); they only render these.

mod catalog;
mod finding;

pub use catalog::{Code, Outcome, all_codes, codes};
pub use finding::{Finding, Findings, Place, Severity};
