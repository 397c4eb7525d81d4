//! plain+v0: manifests in `manifests/`, without subfolders, with the rules and messages of RukPak.

use std::collections::BTreeSet;

use super::{
    Files,
    renderer::{ContentFormat, RenderDependencies, RenderInput, RenderPart},
};
use crate::{
    configuration,
    diagnostic::{Finding, Findings, Severity, codes},
    object::{self, Manifest},
    package::Package,
    yaml::{self, Allowance},
};

/// File names of a kustomization.
const KUSTOMIZATION: [&str; 3] = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
/// Folder of the manifests.
pub(super) const FOLDER: &str = "manifests/";

/// Format plain+v0.
pub(super) struct PlainV0;

impl ContentFormat for PlainV0 {
    /// Returns `true`, because files without another format are plain manifests.
    fn is_format_of(&self, _: &Files) -> bool {
        true
    }

    fn reads(&self, path: &str) -> bool {
        path.starts_with(FOLDER)
    }

    fn dependencies(&self) -> RenderDependencies {
        RenderDependencies(&[RenderPart::Config])
    }

    fn describe(&self, _: &Files) -> Result<Option<Package>, Findings> {
        Ok(None)
    }

    fn render(
        &self,
        input: &RenderInput<'_>,
        package: Option<&Package>,
        allowance: &mut Allowance,
        findings: &mut Findings,
    ) -> Vec<Manifest> {
        let mut objects = read(input.files, allowance, findings);
        if let Some(config) = package.and_then(Package::patching_config)
            && !findings.has_errors()
        {
            let given = input.target.config.as_ref();
            match configuration::resolve(config, input.files, given, allowance) {
                Ok(value) => {
                    configuration::apply(&config.patches, &value, &mut objects, findings);
                }
                Err(errors) => findings.extend(errors),
            }
        }
        objects
    }
}

/// Returns all objects of a plain bundle. Errors are added to `findings`.
fn read(files: &Files, allowance: &mut Allowance, findings: &mut Findings) -> Vec<Manifest> {
    let before = findings.len();
    let Some(objects) = flat(files, allowance, findings) else {
        return Vec::new();
    };
    let nothing_else = findings
        .iter()
        .skip(before)
        .all(|finding| finding.code == codes::format::EMPTY_FILE);
    if objects.is_empty() && nothing_else {
        findings.push(
            Finding::error(
                codes::format::NO_OBJECTS,
                "invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object",
            )
            .hint("add at least one manifest to manifests/"),
        );
    }
    objects
}

/// Returns the objects of the files in `manifests/`, without subfolders; `None` if the folder does
/// not exist.
pub(super) fn flat(
    files: &Files,
    allowance: &mut Allowance,
    findings: &mut Findings,
) -> Option<Vec<Manifest>> {
    let manifests: Vec<(&str, &str, &Vec<u8>)> = files
        .iter()
        .filter_map(|(path, text)| Some((path.as_str(), path.strip_prefix(FOLDER)?, text)))
        .collect();
    if manifests.is_empty() {
        findings.push(no_manifests());
        return None;
    }
    let mut objects = Vec::new();
    let mut folders = BTreeSet::new();
    for (path, name, text) in manifests {
        if name.is_empty() {
            continue;
        }
        if let Some((folder, _)) = name.split_once('/') {
            if folders.insert(folder) {
                findings.push(subfolder(folder, name));
            }
            continue;
        }
        match yaml::documents_within(text, path, allowance) {
            Ok(documents) => {
                for document in documents {
                    if KUSTOMIZATION.contains(&name) && document.value["metadata"].is_null() {
                        findings.push(kustomization(path, document.line));
                        continue;
                    }
                    for document in object::unrolled(document, path, findings) {
                        objects.extend(object::read(document, path, findings));
                    }
                }
            }
            Err(errors) => findings.extend(errors.into_iter().map(empty_file_as_warning)),
        }
    }
    Some(objects)
}

fn no_manifests() -> Finding {
    Finding::error(
        codes::format::NO_MANIFESTS,
        "get objects from bundle manifests: readdir manifests: file does not exist",
    )
    .hint("create the folder `manifests` next to bundle.yaml, and move the YAML files into it")
}

/// Returns the error about the kustomization at `path`. The caller recognizes a kustomization by
/// the file name and the missing metadata, because objects of other kinds have metadata.
fn kustomization(path: &str, line: usize) -> Finding {
    Finding::error(
        codes::format::MISSING_FIELD,
        "it is a kustomization, which must be built before the installation",
    )
    .in_file(path)
    .at_line(line)
    .hint(format!(
        "replace the files with the output of `kubectl kustomize {FOLDER}`, or remove the \
        kustomization to install the files of {FOLDER} unchanged"
    ))
}

/// Changes the error about a file without documents to a warning, because kubectl ignores such
/// files.
fn empty_file_as_warning(mut finding: Finding) -> Finding {
    if finding.code == codes::format::EMPTY_FILE {
        finding.severity = Severity::Warning;
    }
    finding
}

/// Returns the error about `folder`, a subfolder of `manifests/`. `first` is the first path in this
/// subfolder, relative to `manifests/`.
fn subfolder(folder: &str, first: &str) -> Finding {
    let hint = if first.ends_with('/') {
        "remove the empty folder".to_owned()
    } else {
        format!(
            "move and rename the files, for example `mv {FOLDER}{first} {FOLDER}{}`, or move the folder out of {FOLDER}",
            first.replace('/', "-")
        )
    };
    Finding::error(
        codes::format::SUBFOLDER,
        format!(
            "get objects from bundle manifests: subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"{FOLDER}{folder}\""
        ),
    )
    .hint(hint)
}
