//! `trust`: selects the TUF repository that provides the trust root.

mod arguments;
pub(crate) mod init;
mod report;
pub(crate) mod reset;
pub(crate) mod show;
pub(crate) mod update;

use bundle_core::diagnostic::{Finding, codes};

use crate::failure::Outcome;
use crate::sigstore::root::{Folders, TrustRootSettings};

pub(crate) use arguments::Arguments;

/// Returns the folders in which the selected repository is stored.
fn folders(wanted: &TrustRootSettings) -> Outcome<&Folders> {
    wanted.folders.as_ref().ok_or_else(|| {
        Finding::error(
            codes::usage::FILE_UNWRITABLE,
            "no folder is available to store the trust root",
        )
        .hint("set HOME, or XDG_CONFIG_HOME and XDG_CACHE_HOME")
        .into()
    })
}
