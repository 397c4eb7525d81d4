//! Phase and conditions of a Bundle, from the outcome of its reconcile.

use bundle_api::names::{self, condition, reason};

use crate::diagnostic::{Code, codes};
use crate::plan::conditions::{ConditionChange, ConditionStatus};
use crate::reference::Digest;

/// `status.phase` of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The content was not uploaded yet.
    Pending,
    /// The content is being fetched for the first time.
    Unpacking,
    /// The content could not be fetched, or was rejected.
    Failing,
    /// The content is available.
    Unpacked,
}

impl Phase {
    /// Returns the value of `status.phase`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => names::PHASE_PENDING,
            Self::Unpacking => names::PHASE_UNPACKING,
            Self::Failing => names::PHASE_FAILING,
            Self::Unpacked => names::PHASE_UNPACKED,
        }
    }
}

/// Failure of a reconcile.
#[derive(Debug, Clone, Copy)]
pub struct BundleFailure<'a> {
    /// Diagnostic code.
    pub code: Code,
    /// The reason of the condition.
    pub reason: &'a str,
    /// The message of the condition.
    pub message: &'a str,
    /// Failed verification; `None` if the reconcile failed for another reason.
    pub verified: Option<VerifiedFailure<'a>>,
    /// True if content was unpacked before.
    pub is_unpacked: bool,
}

/// Failed verification.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedFailure<'a> {
    /// True if the result is unknown because a dependency did not respond.
    pub is_unknown: bool,
    /// The message of the condition.
    pub message: &'a str,
}

/// Unpacked content.
#[derive(Debug, Clone, Copy)]
pub struct UnpackedContent<'a> {
    /// Digest of the content.
    pub digest: &'a Digest,
    /// Reason and message of the condition `Verified`.
    pub verified: (&'a str, &'a str),
    /// Status, reason and message of the condition `Compatible`. An unsupported server does not
    /// prevent unpacking, because a BundleDeployment may accept an unsupported server.
    pub compatible: (ConditionStatus, &'a str, &'a str),
    /// Warnings about the content.
    pub warnings: &'a [String],
}

/// Result of a comparison of an unpacked Bundle with its source.
#[derive(Debug, Clone, Copy)]
pub enum SourceComparison<'a> {
    /// The comparison is not complete.
    Pending,
    /// The source still refers to the unpacked content.
    Unchanged,
    /// The source now refers to other content.
    Changed {
        /// Description of the source.
        source: &'a str,
        /// Digest to which the source now refers.
        now: &'a Digest,
    },
    /// The source did not respond, for this reason. Installed content is not affected.
    Unknown(&'a str),
}

/// Outcome of a reconcile of a Bundle.
#[derive(Debug, Clone, Copy)]
pub enum BundleOutcome<'a> {
    /// The content is being fetched.
    Pending {
        /// True if the status reports that an earlier attempt failed for the same generation. The
        /// status keeps this report until the next attempt ends.
        is_retry: bool,
    },
    /// The content was not uploaded yet. An upload starts the next reconcile.
    NotUploaded,
    /// The reconcile failed.
    Failed(BundleFailure<'a>),
    /// The content was unpacked.
    Unpacked(UnpackedContent<'a>),
    /// Content with this digest was unpacked before.
    Sealed(&'a Digest, SourceComparison<'a>),
}

/// Change of the status of a Bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusPlan {
    /// New phase; `None` if the phase is unchanged.
    pub phase: Option<Phase>,
    /// True if the resolved source and the content URL are removed from the status.
    pub forgets_source: bool,
    /// Changes of conditions, in order.
    pub conditions: Vec<ConditionChange>,
    /// Types of the conditions whose `observedGeneration` becomes the current generation. A
    /// condition that does not exist is not added.
    pub confirmed: &'static [&'static str],
}

impl BundleOutcome<'_> {
    /// Returns the change of the status.
    pub fn status(&self) -> StatusPlan {
        let (phase, conditions) = match self {
            Self::Pending { is_retry: false } => (Some(Phase::Unpacking), pending()),
            Self::Pending { is_retry: true } => (None, not_checked().into()),
            Self::NotUploaded => {
                return StatusPlan {
                    phase: Some(Phase::Pending),
                    forgets_source: true,
                    conditions: not_uploaded(),
                    confirmed: &[],
                };
            }
            Self::Failed(failure) => return failure.status(),
            Self::Unpacked(content) => (Some(Phase::Unpacked), content.conditions()),
            Self::Sealed(digest, answer) => (Some(Phase::Unpacked), answer.conditions(digest)),
        };
        StatusPlan {
            phase,
            forgets_source: false,
            conditions,
            confirmed: self.confirmed(),
        }
    }

    /// Returns the value of [`StatusPlan::confirmed`]. Sealed content belongs to the current spec,
    /// even if a later write changed the text of the spec without changing its meaning.
    fn confirmed(&self) -> &'static [&'static str] {
        match self {
            Self::Sealed(..) => &[
                condition::VERIFIED,
                condition::COMPATIBLE,
                condition::UNPACKED,
            ],
            _ => &[],
        }
    }

    /// Returns true if an Event about the unpacked content is due. `was_unpacked` is true if the
    /// status already reported the unpacked content.
    pub fn is_event_due(&self, was_unpacked: bool) -> bool {
        !was_unpacked && matches!(self, Self::Unpacked(_) | Self::Sealed(..))
    }

    /// Returns true if the reconcile succeeded, so that the delay after earlier failures is reset.
    /// Returns false while the content is being fetched.
    pub fn has_succeeded(&self) -> bool {
        matches!(self, Self::Unpacked(_) | Self::Sealed(..))
    }

    /// Returns true if the source must be resolved again after an interval. Returns false for a
    /// fixed source. Also returns false while a comparison runs, because the end of the comparison
    /// triggers a reconcile.
    pub fn compares_source_again(&self, is_source_fixed: bool) -> bool {
        let is_answered = matches!(
            self,
            Self::Unpacked(_)
                | Self::Sealed(
                    _,
                    SourceComparison::Unchanged
                        | SourceComparison::Changed { .. }
                        | SourceComparison::Unknown(_)
                )
        );
        is_answered && !is_source_fixed
    }
}

/// Returns changes that set `Verified` and `Compatible` to `Unknown` if they do not exist.
fn not_checked() -> [ConditionChange; 2] {
    [condition::VERIFIED, condition::COMPATIBLE].map(|kind| {
        ConditionChange::default(
            kind,
            ConditionStatus::Unknown,
            reason::UNPACK_PENDING,
            "not checked yet",
        )
    })
}

fn pending() -> Vec<ConditionChange> {
    not_unpacked(
        reason::UNPACKING,
        "the content is being fetched, or is queued",
    )
}

/// Returns the conditions of a Bundle without an upload. The message is from RukPak
/// (`internal/source/upload.go`).
fn not_uploaded() -> Vec<ConditionChange> {
    not_unpacked(reason::UNPACK_PENDING, "waiting for bundle to be uploaded")
}

fn not_unpacked(reason: &str, message: &str) -> Vec<ConditionChange> {
    let mut conditions = vec![ConditionChange::new(
        condition::UNPACKED,
        ConditionStatus::False,
        reason,
        message,
    )];
    conditions.extend(not_checked());
    conditions
}

impl BundleFailure<'_> {
    fn status(&self) -> StatusPlan {
        let mut conditions = Vec::new();
        if let Some(VerifiedFailure {
            is_unknown,
            message,
        }) = self.verified
        {
            let state = if is_unknown {
                ConditionStatus::Unknown
            } else {
                ConditionStatus::False
            };
            conditions.push(ConditionChange::new(
                condition::VERIFIED,
                state,
                reason::UNPACK_FAILED,
                message,
            ));
        }
        conditions.extend(not_checked());
        let is_refused =
            [codes::install::CONTENT_CHANGED, codes::review::NOT_ADMITTED].contains(&self.code);
        // Content that was unpacked before is still available.
        if self.is_unpacked && !is_refused {
            return StatusPlan {
                phase: None,
                forgets_source: false,
                conditions,
                confirmed: &[],
            };
        }
        conditions.push(ConditionChange::new(
            condition::UNPACKED,
            ConditionStatus::False,
            self.reason,
            self.message,
        ));
        StatusPlan {
            phase: Some(Phase::Failing),
            forgets_source: true,
            conditions,
            confirmed: &[],
        }
    }
}

impl UnpackedContent<'_> {
    fn conditions(&self) -> Vec<ConditionChange> {
        let (found, signers) = self.verified;
        let (state, fits, range) = self.compatible;
        let mut message = "Successfully unpacked the bundle".to_owned();
        if !self.warnings.is_empty() {
            message = format!("{message}; {}", self.warnings.join("; "));
        }
        let unpacked = reason::UNPACK_SUCCESSFUL;
        vec![
            ConditionChange::new(condition::VERIFIED, ConditionStatus::True, found, signers),
            ConditionChange::new(condition::COMPATIBLE, state, fits, range),
            ConditionChange::new(
                condition::UNPACKED,
                ConditionStatus::True,
                unpacked,
                message,
            ),
            unchanged(self.digest),
        ]
    }
}

fn unchanged(digest: &Digest) -> ConditionChange {
    ConditionChange::new(
        condition::SOURCE_MOVED,
        ConditionStatus::False,
        reason::SOURCE_UNCHANGED,
        format!("the source refers to {digest}"),
    )
}

impl SourceComparison<'_> {
    fn conditions(&self, digest: &Digest) -> Vec<ConditionChange> {
        // Restores a status that another client partly removed.
        let mut conditions = vec![ConditionChange::default(
            condition::UNPACKED,
            ConditionStatus::True,
            reason::UNPACK_SUCCESSFUL,
            "Successfully unpacked the bundle",
        )];
        let kind = condition::SOURCE_MOVED;
        match self {
            Self::Pending => {}
            Self::Unchanged => conditions.push(unchanged(digest)),
            Self::Changed { source, now } => conditions.push(ConditionChange::new(
                kind,
                ConditionStatus::True,
                reason::SOURCE_MOVED,
                format!(
                    "{source} now refers to {now}; this Bundle keeps {digest}, which was unpacked first"
                ),
            )),
            Self::Unknown(why) => conditions.push(ConditionChange::new(
                kind,
                ConditionStatus::Unknown,
                "SourceUnseen",
                *why,
            )),
        }
        conditions
    }
}
