//! Weighs and parses the files of content. To weigh files means to compute the memory that parsing
//! needs. During weighing, only one file is in memory at a time.

use std::collections::BTreeMap;
use std::io;

use bundle_api::names::reason;
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Finding, Findings, codes};
use bundle_core::format::{
    self, CommandOutput, Content, Files, ReadFiles, RenderInput, RenderTarget,
};
use bundle_core::package::{self, Format};
use bundle_core::yaml::{self, Weight};

use crate::reconcile::content::rendered::PER_OBJECT;
use crate::reconcile::content::sealed_file::FileLocation;
use crate::reconcile::content::stored::Summary;
use crate::reconcile::error::{ReconcileError, RetryPolicy};

/// The reason why the memory that content needs could not be computed.
pub(super) enum WeighError {
    Unreadable(Finding),
    /// The memory exceeds the limit. Contains the memory for the files that were weighed before the
    /// limit was exceeded, in bytes.
    TooLarge(u64),
    Io(io::Error),
}

/// Computes the size of the files, and the memory that parsing needs. Reads one file at a time.
/// Stops when the memory exceeds `limit` bytes.
pub(super) fn weigh(
    files: &BTreeMap<String, FileLocation>,
    limit: u64,
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
        if summary.weight > limit {
            return Err(WeighError::TooLarge(summary.weight));
        }
        documents = documents.plus(weight);
    }
    let has_file = |path: &str| files.contains_key(path);
    summary.weight = format::rendering_memory(has_file, summary.weight, &documents)
        .saturating_add(read_files.config_memory());
    Ok(summary)
}

/// Reads the files that rendering needs. For all other files, the result contains only the name and
/// no bytes.
pub(super) fn read_files(
    files: Vec<(String, FileLocation)>,
    mut read: impl FnMut(&FileLocation) -> io::Result<Vec<u8>>,
) -> io::Result<Files> {
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
    Ok(all)
}

/// Reads and parses the content of these files. If `check` rejects the format, fails before
/// rendering. If an external command renders the format, the result contains no objects, because
/// the command runs for each installation.
pub(super) fn parse(
    files: Vec<(String, FileLocation)>,
    check: impl FnOnce(Format, bool) -> Result<Format, Finding>,
    cancellation: &Cancellation,
    read: impl FnMut(&FileLocation) -> io::Result<Vec<u8>>,
) -> io::Result<Result<Content, Findings>> {
    let files = read_files(files, read)?;
    let input = RenderInput {
        files: &files,
        target: &RenderTarget::default(),
        output: CommandOutput::Later,
    };
    Ok(format::render_objects(&input, check, cancellation))
}

/// Converts the result of reading content. A parse error is permanent, because the digest
/// determines the files. A disk error is retried, because the content is fetched again.
pub(in crate::reconcile) fn read_error<T>(
    read: io::Result<Result<T, Findings>>,
    reason: &'static str,
) -> Result<T, ReconcileError> {
    match read {
        Ok(Ok(content)) => Ok(content),
        Ok(Err(findings)) => Err(content_error(&findings, reason)),
        Err(error) => Err(ReconcileError::new(
            codes::install::CONTENT_LOST,
            reason,
            format!("the content cannot be read from the cache, and is fetched again: {error}"),
            RetryPolicy::Soon,
        )),
    }
}

/// Returns the error for findings about content. The error is not retried until the content or its
/// configuration changes. There is one exception: if parsing was cancelled at its time limit, the
/// error is retried.
pub(super) fn content_error(findings: &Findings, reason: &'static str) -> ReconcileError {
    let code = codes::format::INVALID_CONFIGURATION;
    let reason = if findings.errors().all(|finding| finding.code == code) {
        reason::INVALID_CONFIGURATION
    } else {
        reason
    };
    let cancelled = codes::format::CANCELLED;
    let retry = if findings.errors().any(|finding| finding.code == cancelled) {
        RetryPolicy::Slowly
    } else {
        RetryPolicy::OnChange
    };
    ReconcileError::findings(reason, findings, retry)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCATION: FileLocation = FileLocation {
        offset: 0,
        length: 0,
        hash: [0; 32],
    };

    #[test]
    fn weighing_reads_no_further_file_above_the_limit() {
        let files = (0..100).map(|number| (format!("manifests/{number}.yaml"), LOCATION));
        let files: BTreeMap<_, _> = files.collect();
        let text = format!("a: [{}]\n", "0,".repeat(1_000)).into_bytes();
        let weighed = |limit| {
            let mut count = 0;
            let read = |_: &FileLocation| {
                count += 1;
                Ok(text.clone())
            };
            let weighed = weigh(&files, limit, &Cancellation::default(), read);
            (weighed, count)
        };
        let (all, count) = weighed(u64::MAX);
        let Ok(Summary { weight, .. }) = all else {
            panic!("the files can be weighed");
        };
        assert_eq!(count, 100);
        let (some, count) = weighed(weight / 10);
        let Err(WeighError::TooLarge(partial)) = some else {
            panic!("the files exceed the limit");
        };
        assert_eq!(count, 11);
        assert!(partial > weight / 10 && partial < weight / 5);
    }

    #[test]
    fn only_work_that_used_its_processor_time_is_retried_without_a_change() {
        let failed = |text: &[u8], cancellation: &Cancellation| {
            let path = "manifests/a.yaml".to_owned();
            let files = BTreeMap::from([(path.clone(), LOCATION)]);
            let read = |_: &FileLocation| Ok(text.to_vec());
            let weighed = weigh(&files, u64::MAX, cancellation, read);
            let Err(WeighError::Unreadable(finding)) = weighed else {
                panic!("the file can be weighed");
            };
            let weighed = content_error(&finding.into(), "UnpackFailed");
            let files = vec![(path, LOCATION)];
            let parsed = parse(files, |format, _| Ok(format), cancellation, read);
            let parsed = read_error(parsed, "UnpackFailed").unwrap_err();
            [weighed, parsed].map(|error| (error.code.id, error.retry))
        };
        let valid = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
        let used_up = Cancellation::with_limit(|| true);
        let expected = ("BUNDLE-FORMAT-027", RetryPolicy::Slowly);
        assert_eq!(failed(valid, &used_up), [expected; 2]);
        for (code, retry) in failed(b"kind: [", &Cancellation::default()) {
            assert_eq!(retry, RetryPolicy::OnChange, "{code}");
        }
    }

    #[test]
    fn content_of_a_format_that_the_class_lacks_is_not_rendered() {
        let parsed = |check: fn(Format, bool) -> Result<Format, Finding>| {
            let files = vec![("manifests/a.yaml".to_owned(), LOCATION)];
            let invalid = |_: &FileLocation| Ok(b"kind: [".to_vec());
            let cancellation = Cancellation::default();
            let parsed = parse(files, check, &cancellation, invalid);
            parsed.unwrap().unwrap_err().to_string()
        };
        let rendered = parsed(|found, _| Ok(found));
        assert!(rendered.contains("invalid YAML"), "{rendered}");
        let rejected = parsed(|format, _| {
            let format = format.to_string();
            Err(Finding::error(codes::format::WRONG_CLASS, format))
        });
        assert_eq!(rejected, "plain+v0");
    }
}
