//! Search for a plugin on PATH, and the error for a missing plugin.

use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};

use super::KmsKey;
use crate::system::command_lookup::{self, CommandLookup};

/// Returns the path of the plugin for `key`.
pub(super) fn on_path(key: &KmsKey) -> Result<PathBuf, Finding> {
    let name = key.program();
    match command_lookup::find(&name) {
        CommandLookup::Program(path) => Ok(path),
        CommandLookup::NotExecutable(path) => Err(Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{}` is required for {key}, but is not executable", path.display()),
        )
        .hint("make it executable: chmod +x")),
        CommandLookup::Missing => Err(Finding::error(
            codes::usage::NO_PROGRAM,
            format!("`{name}` is required for {key} and was not found on PATH"),
        )
        .hint(if key.is_built_into_cosign() {
            "unlike cosign, `kubectl bundle` supports this KMS only through a plugin: an executable with this name that implements sigstore's KMS plugin protocol"
        } else {
            "install the plugin of your KMS: an executable with this name that implements sigstore's KMS plugin protocol; if the key is a file, write ./ before its name"
        })),
    }
}
