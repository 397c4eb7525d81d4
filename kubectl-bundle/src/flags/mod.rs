//! Flags that several verbs share, and the environment. Each group of flags is converted to
//! settings.

pub(crate) mod cluster;
mod content_service;
pub(crate) mod duration;
mod environment;
mod global;
mod images;
mod output;
pub(crate) mod registry;

use std::path::Path;

use bundle_core::diagnostic::{Finding, codes};
use bundle_oci::manifest::Platform;

use crate::failure::Outcome;

pub(crate) use cluster::{ClusterFlags, DryRunMode, StateNamespaceFlags};
pub(crate) use content_service::{ContentServiceFlags, service_account};
pub(crate) use environment::Environment;
pub(crate) use global::GlobalFlags;
pub(crate) use images::ImageFlags;
pub(crate) use output::{
    DataFormat, DestinationFlags, ListFlags, ObjectFormat, OutputFlags, TableFormat,
};
pub(crate) use registry::RegistryFlags;

/// Returns the error for a path after `-o`. This flag selects the output format, as in kubectl.
pub(crate) fn path_after_output(message: &str, path: &Path) -> Finding {
    invalid_flag("--output", message).hint(format!("use --to for a path: --to {}", path.display()))
}

/// Returns the error for an invalid value of a flag.
pub(crate) fn invalid_flag(flag: &str, message: &str) -> Finding {
    Finding::error(codes::usage::BAD_ARGUMENT, message).at_field(flag)
}

/// Parses the value of `--platform`.
pub(crate) fn platform(text: Option<&str>) -> Outcome<Option<Platform>> {
    let read = text.map(str::parse).transpose();
    Ok(read.map_err(|why: String| invalid_flag("--platform", &why))?)
}
