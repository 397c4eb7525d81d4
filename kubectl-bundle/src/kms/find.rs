//! Search for a plugin on PATH, and the error if it is missing.

use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};

use super::Key;
use crate::path::{self, Found};

/// Returns the program for `key`.
pub(super) fn on_path(key: &Key) -> Result<PathBuf, Finding> {
    let name = key.program();
    match path::find(&name) {
        Found::Program(path) => Ok(path),
        Found::Barred(path) => Err(Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{}` is needed for {key}, and may not be run", path.display()),
        )
        .hint("its permissions do not say that it is a program: chmod +x")),
        Found::Nothing => Err(Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{name}` is needed for {key} and is not on PATH"),
        )
        .hint(if key.is_built_into_cosign() {
            "cosign has this service built in; here it is reached through a plugin, an executable of that name that speaks sigstore's KMS plugin protocol"
        } else {
            "install the plugin of your key service, an executable of that name that speaks sigstore's KMS plugin protocol; a file of that name needs ./ before it"
        })),
    }
}
