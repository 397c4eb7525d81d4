//! Verbs for bundle-webhook and its review of objects.

pub(crate) mod check;
pub(crate) mod doctor;
pub(crate) mod install;
pub(crate) mod uninstall;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::Outcome;

/// Returns an error if a name was passed. In other tools, `install NAME` installs a package, but in
/// this plugin, `verb` handles bundle-webhook itself.
fn reject_names(names: &[String], verb: &str, command: &str) -> Outcome {
    let Some(name) = names.first() else {
        return Ok(());
    };
    Err(Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!(
            "`{verb}` handles bundle-webhook itself and has no NAME argument, but got `{name}`"
        ),
    )
    .hint(format!("for a bundle use {command}"))
    .into())
}
