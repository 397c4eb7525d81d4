//! Converts a packed chart to the files of a bundle.

use bundle_core::diagnostic::Findings;
use bundle_core::format::{Files, helm};
use bundle_core::yaml::Allowance;

/// Returns the files of a packed chart without their top folder. A bundle has Chart.yaml at its
/// root, as in RukPak.
pub(super) fn without_top_folder(files: Files) -> Result<Files, Findings> {
    let (_, folder) = helm::read(&files, &mut Allowance::default())?;
    Ok(files
        .into_iter()
        .filter_map(|(path, content)| Some((path.strip_prefix(&folder)?.to_owned(), content)))
        .collect())
}
