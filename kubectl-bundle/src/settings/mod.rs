//! From what was typed to what is meant: environment, defaults and checks across flags, in one place.

mod cluster;
mod duration;
mod environment;
mod identity;
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

/// The path of `--to` and the format of `-o`, of verbs that write to a path.
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

/// The error where a path is given after `-o`, which is kubectl's flag for a format.
fn not_a_path(message: &str, path: &Path) -> Finding {
    unusable("--output", message).hint(format!(
        "the flag for a path is --to: --to {}",
        path.display()
    ))
}

/// A flag whose value cannot be used.
fn unusable(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}
