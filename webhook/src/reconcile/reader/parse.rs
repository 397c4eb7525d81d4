//! Weighs and parses the files of content. One file at a time is in memory while they are weighed.

use std::collections::BTreeMap;
use std::io;

use bundle_api::names::reason;
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{self, Content, Files, ReadFiles, RenderInput, RenderTarget};
use bundle_core::package::{self, Format};
use bundle_core::yaml::{self, Weight};

use crate::reconcile::content::rendered::PER_OBJECT;
use crate::reconcile::content::sealed_file::FileLocation;
use crate::reconcile::content::stored::Summary;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The reason why the memory that content needs could not be computed.
pub(super) enum WeighError {
    Unreadable(Finding),
    Io(io::Error),
}

/// Computes the memory that parsing these files needs. Reads one file at a time.
pub(super) fn weigh(
    files: &BTreeMap<String, FileLocation>,
    cancellation: &Cancellation,
    mut read: impl FnMut(&FileLocation) -> io::Result<Vec<u8>>,
) -> Result<Summary, WeighError> {
    let mut summary = Summary {
        bytes: 0,
        weight: 0,
    };
    let mut allowance = yaml::Allowance::new(cancellation);
    let mut documents = Weight::default();
    let package = files.get(package::FILE).map(&mut read).transpose();
    let read_files = ReadFiles::new(package.map_err(WeighError::Io)?.as_deref());
    for (path, location) in files {
        summary.bytes += location.length;
        if !read_files.includes(path) {
            continue;
        }
        let bytes = read(location).map_err(WeighError::Io)?;
        let weight = yaml::weigh(&bytes, path, &mut allowance);
        let weight = weight.map_err(WeighError::Unreadable)?;
        let objects = weight.objects.saturating_mul(PER_OBJECT);
        summary.weight = summary
            .weight
            .saturating_add(location.length)
            .saturating_add(weight.tree.0)
            .saturating_add(objects);
        documents = documents.plus(weight);
    }
    let has_file = |path: &str| files.contains_key(path);
    summary.weight = format::rendering_memory(has_file, summary.weight, &documents)
        .saturating_add(read_files.config_memory());
    Ok(summary)
}

/// Returns the objects in these files, rendered for `target`. For files whose content is not read,
/// only the names are passed. Content of a format that `check` rejects is not rendered.
pub(super) fn parse(
    files: Vec<(String, FileLocation)>,
    target: &RenderTarget,
    check: impl FnOnce(Format) -> Result<(), Finding>,
    cancellation: &Cancellation,
    mut read: impl FnMut(&FileLocation) -> io::Result<Vec<u8>>,
) -> io::Result<Result<Content, Findings>> {
    let mut all = Files::new();
    let package = files.iter().find(|(path, _)| path == package::FILE);
    let package = package.map(|(_, location)| read(location)).transpose()?;
    let read_files = ReadFiles::new(package.as_deref());
    drop(package);
    for (path, location) in files {
        let bytes = if read_files.includes(&path) {
            read(&location)?
        } else {
            Vec::new()
        };
        all.insert(path, bytes);
    }
    let input = RenderInput {
        files: &all,
        target,
        output: None,
    };
    Ok(format::render_objects(&input, check, cancellation))
}

/// Classifies the failure. A digest always means the same files, so a parse error is permanent. A
/// disk error is retried.
pub(in crate::reconcile) fn read_error(
    read: io::Result<Result<Content, Findings>>,
    reason: &'static str,
) -> Result<Content, ReconcileError> {
    match read {
        Ok(Ok(content)) => Ok(content),
        Ok(Err(findings)) => {
            let code = codes::format::INVALID_CONFIGURATION;
            let reason = if findings.errors().all(|finding| finding.code == code) {
                reason::INVALID_CONFIGURATION
            } else {
                reason
            };
            let retry = RetryPolicy::OnChange;
            Err(ReconcileError::findings(reason, &findings, retry))
        }
        Err(error) => Err(ReconcileError::new(
            codes::install::CONTENT_LOST,
            reason,
            format!("the content cannot be read from the cache, and is fetched again: {error}"),
            RetryPolicy::Soon,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_of_a_format_that_the_class_lacks_is_not_rendered() {
        let location = FileLocation {
            offset: 0,
            length: 0,
            hash: [0; 32],
        };
        let parsed = |check: fn(Format) -> Result<(), Finding>| {
            let files = vec![("manifests/a.yaml".to_owned(), location)];
            let invalid = |_: &FileLocation| Ok(b"kind: [".to_vec());
            let cancellation = Cancellation::default();
            let parsed = parse(
                files,
                &RenderTarget::default(),
                check,
                &cancellation,
                invalid,
            );
            parsed.unwrap().unwrap_err().to_string()
        };
        let rendered = parsed(|_| Ok(()));
        assert!(rendered.contains("invalid YAML"), "{rendered}");
        let rejected = parsed(|format| {
            let format = format.to_string();
            Err(Finding::error(codes::format::WRONG_CLASS, format))
        });
        assert_eq!(rejected, "plain+v0");
    }
}
