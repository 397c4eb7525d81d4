//! plain+v0: manifests in `manifests/`, flat, as RukPak read them and with its words.
//! Not here: rules for single objects (object).

use super::Files;
use crate::{
    diagnostic::{Finding, Findings, codes},
    object::{self, Manifest},
    yaml,
};

const FOLDER: &str = "manifests/";

/// All objects of a plain bundle; what is wrong is added to `findings`.
pub(super) fn read(files: &Files, findings: &mut Findings) -> Vec<Manifest> {
    let mut objects = Vec::new();
    let mut seen = false;
    for (path, text) in files {
        let Some(rest) = path.strip_prefix(FOLDER) else {
            continue;
        };
        seen = true;
        if let Some((folder, _)) = rest.split_once('/') {
            findings.push(Finding::error(codes::format::SUBFOLDER, format!("subdirectories are not allowed within the \"manifests\" directory of the bundle image filesystem: found \"{FOLDER}{folder}\"")).in_file(path));
            continue;
        }
        match yaml::documents(text, path) {
            Ok(documents) => objects.extend(
                documents
                    .into_iter()
                    .filter_map(|document| object::read(document, path, findings)),
            ),
            Err(errors) => findings.0.extend(errors.0),
        }
    }
    if !seen {
        findings.push(Finding::error(
            codes::format::NO_MANIFESTS,
            "get objects from bundle manifests: readdir manifests: file does not exist",
        ));
    } else if objects.is_empty() && !findings.has_errors() {
        findings.push(Finding::error(codes::format::NO_OBJECTS, "invalid bundle: found zero objects: plain+v0 bundles are required to contain at least one object"));
    }
    object::distinct(&objects, findings);
    objects
}
