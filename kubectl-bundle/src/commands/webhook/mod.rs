//! Verbs for bundle-webhook and its review of objects.

pub(crate) mod check;
pub(crate) mod install;
pub(crate) mod uninstall;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::Outcome;

/// Refuses names: other tools install packages with this verb.
fn reject_names(names: &[String], verb: &str, meant: &str) -> Outcome {
    let Some(name) = names.first() else {
        return Ok(());
    };
    Err(Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("`{verb}` is about bundle-webhook itself and takes no name, but got `{name}`"),
    )
    .hint(format!("for a bundle use {meant}"))
    .into())
}
