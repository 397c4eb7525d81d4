//! Renders a chart with helm from exactly the files that are packed, so that the checks apply to
//! the packed content.

use std::process::Command;

use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{Files, helm};
use bundle_core::package::Package;
use bundle_core::version::apis;

use super::program;
use crate::failure::{Failure, Outcome};

/// Environment variables that would change helm's output.
const SURROUNDINGS: [&str; 5] = [
    "HELM_NAMESPACE",
    "HELM_PLUGINS",
    "HELM_DEBUG",
    "HELM_KUBECONTEXT",
    "KUBECONFIG",
];

/// Returns the objects of the chart in `files`, with the chart's values overridden by the package's
/// default configuration.
pub(super) fn render(files: &Files, package: &Package) -> Outcome<Vec<u8>> {
    let (_, folder) = helm::read(files)?;
    let room = tempfile::tempdir().map_err(|error| unwritable(&error))?;
    let chart = room.path().join("chart");
    for (path, content) in files {
        if path.ends_with('/') {
            continue;
        }
        let place = chart.join(path);
        if let Some(parent) = place.parent() {
            fs_err::create_dir_all(parent).map_err(|error| unwritable(&error))?;
        }
        fs_err::write(&place, content).map_err(|error| unwritable(&error))?;
    }
    let mut command = Command::new("helm");
    command
        .arg("template")
        .arg(&package.name)
        .arg(chart.join(&folder))
        .args(["--include-crds", "--skip-tests", "--namespace", "default"]);
    // Without it, helm uses a Kubernetes version of its own and rejects charts for older versions.
    let kubernetes = package.kubernetes.clone().unwrap_or_default();
    if let Some([major, minor, patch]) = kubernetes.render_version(apis::OLDEST, apis::newest()) {
        command
            .arg("--kube-version")
            .arg(format!("{major}.{minor}.{patch}"));
    }
    for api in package.requires.iter().flat_map(|requires| &requires.apis) {
        command.arg("--api-versions").arg(api);
    }
    if let Some(values) = package
        .config
        .as_ref()
        .and_then(|config| config.default.as_ref())
    {
        // A fixed file name: helm splits file names at commas, so the author's name could refer to
        // any file.
        let own = room.path().join("values.yaml");
        let content = files.get(values.as_str()).map_or(&[][..], Vec::as_slice);
        fs_err::write(&own, content).map_err(|error| unwritable(&error))?;
        command.arg("--values").arg(own);
    }
    for name in SURROUNDINGS {
        command.env_remove(name);
    }
    for name in ["HELM_CONFIG_HOME", "HELM_CACHE_HOME", "HELM_DATA_HOME"] {
        command.env(name, room.path().join("helm"));
    }
    program::run(
        "helm",
        command,
        "install helm 3 or later from https://helm.sh, or render the chart elsewhere and build the result as plain+v0",
    )
}

/// Returns the files of a packed chart without their top folder: a bundle has Chart.yaml at its
/// root, as in RukPak.
pub(super) fn at_the_root(files: Files) -> Result<Files, Findings> {
    let (_, folder) = helm::read(&files)?;
    Ok(files
        .into_iter()
        .filter_map(|(path, content)| Some((path.strip_prefix(&folder)?.to_owned(), content)))
        .collect())
}

fn unwritable(error: &std::io::Error) -> Failure {
    Failure::caused(
        Finding::error(
            codes::usage::FILE_UNWRITABLE,
            "the chart cannot be laid out for helm",
        )
        .hint("check the room in the folder for temporary files"),
        error,
    )
}
