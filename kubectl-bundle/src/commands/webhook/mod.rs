//! Verbs for bundle-webhook and its review of objects.

pub(crate) mod check;
pub(crate) mod install;
pub(crate) mod uninstall;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::Outcome;

/// Returns an error if names are given: other tools install packages with this verb.
fn reject_names(names: &[String], verb: &str, command: &str) -> Outcome {
    let Some(name) = names.first() else {
        return Ok(());
    };
    Err(Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("`{verb}` is for bundle-webhook itself and accepts no name, but `{name}` is given"),
    )
    .hint(format!("for a bundle use {command}"))
    .into())
}
