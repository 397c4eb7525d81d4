//! Errors of reconciles that load content.

use std::io;

use bundle_core::diagnostic::{Finding, Outcome, codes};
use bundle_core::plan::retry::source::{NamedContent, SourceFailure};
use bundle_oci::registry::RegistryError;

use crate::clients::registries;
use crate::reconcile::error::{ReconcileError, RetryPolicy};
use crate::sources::{SourceError, UploadSourceError};

/// Hint for failures with [`RetryPolicy::Hourly`].
const HOURLY: &str = "the same content is read again only after a minute, and later every hour; to read it within 10 s, change an annotation of the Bundle";

/// Converts the failure of a source to the error of a reconcile. `named` states whether the source
/// names fixed content, content that can change, or content that was unpacked before.
pub(in crate::reconcile) fn source_error(
    error: SourceError,
    named: NamedContent,
    reason: &'static str,
) -> ReconcileError {
    match error {
        SourceError::PullSecret(error) => {
            // The Secret is read again soon, because the API server can be the reason for the
            // failure.
            ReconcileError::findings(reason, &error.finding().into(), RetryPolicy::Soon)
        }
        SourceError::Registry(error) => from_registry_error(&error, named, reason),
        SourceError::Git(error) => {
            let finding = error.finding();
            if finding.code == codes::install::GIT_MISSING {
                // A retry has no effect, because git is missing in the image of the pod.
                return ReconcileError::findings(reason, &finding.into(), RetryPolicy::OnChange);
            }
            retried(finding, error.failure().retry(named), reason)
        }
        SourceError::Http(error) => {
            let finding = error.finding();
            let retry = if error.is_terminal() {
                RetryPolicy::OnChange
            } else if finding.code.outcome == Outcome::Unknown {
                RetryPolicy::Soon
            } else {
                RetryPolicy::Slowly
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
        SourceError::Upload(error) => {
            let finding = error.finding();
            let retry = match error {
                UploadSourceError::Storage(_) | UploadSourceError::Lost(_) => RetryPolicy::Slowly,
                // The next upload starts the next attempt.
                UploadSourceError::NotUploaded | UploadSourceError::Content(_) => {
                    RetryPolicy::OnChange
                }
            };
            ReconcileError::findings(reason, &finding.into(), retry)
        }
        SourceError::ConfigMaps(error) => {
            retried(error.finding(), error.failure().retry(named), reason)
        }
    }
}

fn from_registry_error(
    error: &RegistryError,
    named: NamedContent,
    reason: &'static str,
) -> ReconcileError {
    let finding = registries::image_finding(error);
    // Only files in the cache are written here, so this code means that the cache is full.
    if finding.code == codes::usage::FILE_UNWRITABLE {
        return ReconcileError::new(
            codes::install::CACHE_FULL,
            reason,
            finding.message,
            RetryPolicy::Slowly,
        );
    }
    let failure = if finding.code.outcome == Outcome::Unknown {
        SourceFailure::Unavailable
    } else if error.is_about_content() {
        SourceFailure::Content
    } else {
        SourceFailure::Other
    };
    retried(finding, failure.retry(named), reason)
}

/// Converts a finding to an error. If the retry is delayed for a long time, adds a hint about how a
/// user can start the next attempt earlier.
fn retried(finding: Finding, retry: RetryPolicy, reason: &'static str) -> ReconcileError {
    let finding = match (retry, &finding.hint) {
        (RetryPolicy::Hourly, Some(hint)) => {
            let hint = format!("{hint}; {HOURLY}");
            finding.hint(hint)
        }
        _ => finding,
    };
    ReconcileError::findings(reason, &finding.into(), retry)
}

/// Returns the error for content that cannot be written to the cache.
pub(in crate::reconcile) fn unstorable(error: &io::Error, reason: &'static str) -> ReconcileError {
    let message = format!(
        "the content cannot be stored in the cache: {error}; use a larger volume for the cache, or a smaller --cache-limit"
    );
    ReconcileError::new(
        codes::install::CACHE_FULL,
        reason,
        message,
        RetryPolicy::Slowly,
    )
}

/// Returns the error for a worker thread that panicked.
pub(super) fn panicked(reason: &'static str) -> ReconcileError {
    let message = "cannot read the content: its worker thread panicked";
    ReconcileError::new(
        codes::install::CONTENT_LOST,
        reason,
        message,
        RetryPolicy::Slowly,
    )
}

/// Returns the error for content that needs `weight` bytes of memory, which is more than `limit`.
pub(in crate::reconcile) fn content_too_large(
    weight: u64,
    limit: u64,
    reason: &'static str,
) -> ReconcileError {
    needs_too_much(&weight.div_ceil(1 << 20).to_string(), limit, reason)
}

/// Returns the error for content that needs more than `limit` bytes of memory. `weight` is the
/// memory for the files that were weighed before the limit was exceeded, in bytes.
pub(in crate::reconcile) fn content_over_limit(
    weight: u64,
    limit: u64,
    reason: &'static str,
) -> ReconcileError {
    let needed = format!("more than {}", weight.saturating_sub(1) >> 20);
    needs_too_much(&needed, limit, reason)
}

fn needs_too_much(needed: &str, limit: u64, reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::CONTENT_TOO_LARGE,
        reason,
        format!(
            "the parsed content needs {needed} MiB of memory, and at most {} MiB are available for the content of one bundle: split the content into several bundles, or increase the memory of bundle-webhook",
            limit >> 20
        ),
        RetryPolicy::OnChange,
    )
}

/// Returns the error for content that waits until other content releases memory.
pub(in crate::reconcile) fn no_memory(reason: &'static str) -> ReconcileError {
    let message = "the content waits for memory that other content uses; the reconcile is retried";
    ReconcileError::new(
        codes::install::MEMORY_BUSY,
        reason,
        message,
        RetryPolicy::Soon,
    )
}

/// Returns the error for content that is being fetched again.
pub(in crate::reconcile) fn fetched_again(reason: &'static str) -> ReconcileError {
    ReconcileError::new(
        codes::install::UNPACKING,
        reason,
        "the content is not in the cache and is being fetched again; the reconcile continues after the transfer",
        RetryPolicy::Soon,
    )
}

#[cfg(test)]
mod tests {
    use bundle_oci::registry::RegistryErrorReason;
    use bundle_oci::unpack::UnpackError;

    use super::*;
    use crate::clients::registries::PullSecretError;
    use crate::sources::ConfigMapsError;

    fn registry(reason: RegistryErrorReason) -> SourceError {
        SourceError::Registry(RegistryError {
            doing: "pull",
            subject: "registry.example.com/web".to_owned(),
            reason,
        })
    }

    #[test]
    fn unusable_pull_secret_is_no_loss_of_content() {
        let error = PullSecretError::named(&"regcred".parse().unwrap());
        let text = error.to_string();
        let error = source_error(error.into(), NamedContent::Recorded, "UnpackFailed");
        assert_eq!(error.code, codes::registry::BAD_CREDENTIALS);
        assert_eq!(error.retry, RetryPolicy::Soon);
        assert!(error.message.starts_with(&text), "{error:?}");
        assert!(error.message.contains("ask an administrator"), "{error:?}");
    }

    #[test]
    fn content_that_cannot_change_is_not_read_again_within_minutes() {
        let busy = |status| RegistryErrorReason::Busy {
            status,
            detail: String::new(),
        };
        let denied = RegistryErrorReason::Denied {
            who: "without credentials".to_owned(),
            status: 401,
            detail: String::new(),
        };
        let content = |error| registry(RegistryErrorReason::Content(error));
        let unsafe_entry = UnpackError::UnsafeEntry {
            entry: "../a".to_owned(),
            why: "is outside of the bundle".to_owned(),
        };
        let unwritable = UnpackError::Unwritable {
            path: "a".to_owned(),
            why: "no space".to_owned(),
        };
        let duplicates = ConfigMapsError::Duplicates("duplicate path".to_owned());
        let missing = ConfigMapsError::Missing {
            namespace: "bundle-system".to_owned(),
            name: "a".to_owned(),
        };
        for (error, expected) in [
            (registry(RegistryErrorReason::NotFound), RetryPolicy::Hourly),
            (registry(RegistryErrorReason::Index), RetryPolicy::Hourly),
            (content(unsafe_entry), RetryPolicy::Hourly),
            (SourceError::ConfigMaps(duplicates), RetryPolicy::Hourly),
            (registry(busy(503)), RetryPolicy::Soon),
            (registry(busy(429)), RetryPolicy::Soon),
            (registry(denied), RetryPolicy::Slowly),
            (content(unwritable), RetryPolicy::Slowly),
            (SourceError::ConfigMaps(missing), RetryPolicy::Slowly),
        ] {
            let what = error.to_string();
            let error = source_error(error, NamedContent::Fixed, "UnpackFailed");
            assert_eq!(error.retry, expected, "{what}");
            let is_hourly = expected == RetryPolicy::Hourly;
            assert_eq!(error.message.contains(HOURLY), is_hourly, "{error:?}");
        }
        for named in [NamedContent::Movable, NamedContent::Recorded] {
            let error = source_error(
                registry(RegistryErrorReason::NotFound),
                named,
                "UnpackFailed",
            );
            assert_eq!(error.retry, RetryPolicy::Slowly);
            assert!(!error.message.contains(HOURLY), "{error:?}");
        }
    }
}
