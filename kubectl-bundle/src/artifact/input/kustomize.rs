//! Renders a kustomization with `kubectl kustomize`. Each object becomes one file of the bundle, in
//! the order of the output.

use std::path::Path;
use std::process::Command;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::Files;
use bundle_core::yaml;

use super::program;
use crate::failure::Outcome;

/// File names of a kustomization.
const NAMES: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];

/// Returns `true` if the folder has a kustomization.
pub(crate) fn is_kustomization(folder: &Path) -> bool {
    NAMES.iter().any(|name| folder.join(name).is_file())
}

/// Adds the rendered objects of the kustomization in `folder` to `files`.
pub(super) fn render(folder: &Path, files: &mut Files) -> Outcome {
    let mut command = Command::new("kubectl");
    command.arg("kustomize").arg(folder);
    let text = program::run(
        "kubectl",
        command,
        "install kubectl, which includes kustomize",
    )?;
    let name = "the output of kubectl kustomize";
    let documents = yaml::documents(&text, name)?;
    for (index, document) in documents.iter().enumerate() {
        let part = |value: &serde_json::Value| -> String {
            value
                .as_str()
                .unwrap_or("object")
                .to_lowercase()
                .chars()
                .map(|letter| {
                    if letter.is_ascii_alphanumeric() {
                        letter
                    } else {
                        '-'
                    }
                })
                .take(60)
                .collect()
        };
        let path = format!(
            "manifests/{:04}-{}-{}.yaml",
            index + 1,
            part(&document.value["kind"]),
            part(&document.value["metadata"]["name"])
        );
        files.insert(path, yaml::to_string(&document.value).into_bytes());
    }
    if documents.is_empty() {
        return Err(Finding::error(
            codes::format::NO_OBJECTS,
            "the kustomization produces no objects",
        )
        .in_file(folder.display().to_string())
        .hint("list at least one file in `resources`")
        .into());
    }
    Ok(())
}
