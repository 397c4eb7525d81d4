//! From the files of a bundle to its objects.
//! Not here: where files come from (bundle-oci, disks), what a cluster makes of the objects.

mod plain;

use std::collections::BTreeMap;

use crate::{
    diagnostic::Findings,
    object::Manifest,
    package::{self, Format, Package},
};

/// The files of a bundle by path: relative, with `/`, without `.` and `..`.
pub type Files = BTreeMap<String, Vec<u8>>;

/// What is in a bundle.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// What `bundle.yaml` says, where there is one. Images that were made for RukPak have none.
    pub package: Option<Package>,
    /// How the files are laid out.
    pub format: Format,
    /// Its objects, in the order of files and of documents within them.
    pub objects: Vec<Manifest>,
    /// What is worth saying and stops nothing.
    pub warnings: Findings,
}

/// Reads the content of a bundle, and says everything that is wrong with it.
pub fn read(files: &Files) -> Result<Content, Findings> {
    let mut findings = Findings::default();
    let package = match files.get(package::FILE).map(|text| package::parse(text)) {
        Some(Ok(package)) => Some(package),
        Some(Err(errors)) => {
            findings.0.extend(errors.0);
            None
        }
        None => None,
    };
    let format = package
        .as_ref()
        .map_or(Format::PlainV0, |package| package.format);
    let objects = match format {
        Format::PlainV0 => plain::read(files, &mut findings),
    };
    if findings.has_errors() {
        return Err(findings);
    }
    Ok(Content {
        package,
        format,
        objects,
        warnings: findings,
    })
}
