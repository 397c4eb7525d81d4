//! Converts arguments to settings: environment, defaults and checks across flags.

mod cluster;
mod duration;
mod environment;
mod identity;
pub(crate) mod installing;
mod printing;
mod registry;
pub(crate) mod shipping;
pub(crate) mod signing;
pub(crate) mod trust;
pub(crate) mod verbs;
pub(crate) mod writing;

use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};

use crate::args::{Data, FormatOrPath};
use crate::failure::Outcome;
use crate::ui::format::Format;

pub(crate) use environment::Environment;
pub(crate) use printing::style;

/// Returns the path of `--to` and the format of `-o`, for verbs that write to a path.
fn destination(
    to: Option<PathBuf>,
    output: Option<FormatOrPath>,
    format: Option<Data>,
) -> Outcome<(Option<PathBuf>, Option<Format>)> {
    let format = format.map(Into::into);
    match output {
        None => Ok((to, format)),
        Some(FormatOrPath::Format(data)) => Ok((to, Some(data.into()))),
        Some(FormatOrPath::Path(path)) => {
            let told = format!("`{}` is not a format: json or yaml", path.display());
            Err(not_a_path(&told, &path).into())
        }
    }
}

/// Returns the error for a path after `-o`, which is the flag for a format, as in kubectl.
fn not_a_path(message: &str, path: &Path) -> Finding {
    unusable("--output", message).hint(format!("use --to for a path: --to {}", path.display()))
}

/// Returns the error for an invalid value of a flag.
fn unusable(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}
