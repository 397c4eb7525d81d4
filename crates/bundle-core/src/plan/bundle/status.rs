//! Phase and conditions of a Bundle that follow from the outcome of its reconcile.

use crate::diagnostic::{Code, codes};
use crate::plan::conditions::{ConditionChange, State};
use crate::plan::names::{condition, phase, reason};
use crate::reference::Digest;

/// `status.phase` of a Bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The content is being fetched for the first time.
    Unpacking,
    /// The content could not be fetched, or is refused.
    Failing,
    /// The content is there.
    Unpacked,
}

impl Phase {
    /// Returns it as the API has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unpacking => phase::UNPACKING,
            Self::Failing => phase::FAILING,
            Self::Unpacked => phase::UNPACKED,
        }
    }
}

/// A reconcile that could not go on.
#[derive(Debug, Clone, Copy)]
pub struct BundleFailure<'a> {
    /// Its entry in the catalogue.
    pub code: Code,
    /// The reason of the condition.
    pub reason: &'a str,
    /// The message of the condition.
    pub message: &'a str,
    /// The condition `Verified`, if it failed there.
    pub verified: Option<VerifiedFailure<'a>>,
    /// True if content was unpacked before.
    pub is_unpacked: bool,
}

/// Content that was not verified.
#[derive(Debug, Clone, Copy)]
pub struct VerifiedFailure<'a> {
    /// True if it is not known, since somebody did not answer.
    pub is_unknown: bool,
    /// The message of the condition.
    pub message: &'a str,
}

/// Content that was unpacked.
#[derive(Debug, Clone, Copy)]
pub struct UnpackedContent<'a> {
    /// Its digest.
    pub digest: &'a Digest,
    /// Reason and message of the condition `Verified`.
    pub verified: (&'a str, &'a str),
    /// State, reason and message of the condition `Compatible`. A server that is not supported does not stop the unpacking: a BundleDeployment may accept it.
    pub compatible: (State, &'a str, &'a str),
    /// Warnings about the content.
    pub warnings: &'a [String],
}

/// The answer to the question what the source of an unpacked Bundle names now.
#[derive(Debug, Clone, Copy)]
pub enum SourceAnswer<'a> {
    /// There is none yet.
    Pending,
    /// What was unpacked.
    Unchanged,
    /// Other content.
    Moved {
        /// The source, in words.
        source: &'a str,
        /// The digest that it names now.
        now: &'a Digest,
    },
    /// The source did not answer, for this reason. That changes nothing that runs.
    Unknown(&'a str),
}

/// The outcome of a reconcile of a Bundle.
#[derive(Debug, Clone, Copy)]
pub enum BundleOutcome<'a> {
    /// The content is being fetched.
    Pending {
        /// True if the status says that an earlier attempt has failed for the same generation. It
        /// says so until the next attempt has ended.
        is_retry: bool,
    },
    /// It could not go on.
    Failed(BundleFailure<'a>),
    /// The content was unpacked.
    Unpacked(UnpackedContent<'a>),
    /// The content with this digest was unpacked before.
    Sealed(&'a Digest, SourceAnswer<'a>),
}

/// A change of the status of a Bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusPlan {
    /// The phase; `None`: it stays.
    pub phase: Option<Phase>,
    /// True if the status does not name what the source was resolved to any more, nor where the content is served.
    pub forgets_source: bool,
    /// The changes of conditions, in their order.
    pub conditions: Vec<ConditionChange>,
}

impl BundleOutcome<'_> {
    /// Returns the change of the status.
    pub fn status(&self) -> StatusPlan {
        let (phase, conditions) = match self {
            Self::Pending { is_retry: false } => (Some(Phase::Unpacking), pending()),
            Self::Pending { is_retry: true } => (None, not_looked_at().into()),
            Self::Failed(failure) => return failure.status(),
            Self::Unpacked(content) => (Some(Phase::Unpacked), content.conditions()),
            Self::Sealed(digest, answer) => (Some(Phase::Unpacked), answer.conditions(digest)),
        };
        StatusPlan {
            phase,
            forgets_source: false,
            conditions,
        }
    }

    /// Returns `true` if it deserves an Event that the content is unpacked. `was_unpacked`: the status said so before.
    pub fn is_news(&self, was_unpacked: bool) -> bool {
        !was_unpacked && matches!(self, Self::Unpacked(_) | Self::Sealed(..))
    }

    /// Returns `true` if what failed before counts no more. While the content is on its way it still counts.
    pub fn has_succeeded(&self) -> bool {
        matches!(self, Self::Unpacked(_) | Self::Sealed(..))
    }

    /// Returns `true` if the source is to be asked again after a while. Never if it is fixed, and not while an answer is on its way, which wakes the Bundle.
    pub fn asks_source_again(&self, is_source_fixed: bool) -> bool {
        let is_answered = matches!(
            self,
            Self::Unpacked(_)
                | Self::Sealed(
                    _,
                    SourceAnswer::Unchanged | SourceAnswer::Moved { .. } | SourceAnswer::Unknown(_)
                )
        );
        is_answered && !is_source_fixed
    }
}

/// `Verified` and `Compatible` where nothing is said of them yet.
fn not_looked_at() -> [ConditionChange; 2] {
    [condition::VERIFIED, condition::COMPATIBLE].map(|kind| {
        ConditionChange::default(
            kind,
            State::Unknown,
            reason::UNPACK_PENDING,
            "not looked at yet",
        )
    })
}

fn pending() -> Vec<ConditionChange> {
    let mut conditions = vec![ConditionChange::new(
        condition::UNPACKED,
        State::False,
        reason::UNPACKING,
        "the content is being fetched, or waits for its turn",
    )];
    conditions.extend(not_looked_at());
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
                State::Unknown
            } else {
                State::False
            };
            conditions.push(ConditionChange::new(
                condition::VERIFIED,
                state,
                reason::UNPACK_FAILED,
                message,
            ));
        }
        conditions.extend(not_looked_at());
        let is_refused =
            [codes::install::CONTENT_CHANGED, codes::review::NOT_ADMITTED].contains(&self.code);
        // Content that was unpacked stays unpacked.
        if self.is_unpacked && !is_refused {
            return StatusPlan {
                phase: None,
                forgets_source: false,
                conditions,
            };
        }
        conditions.push(ConditionChange::new(
            condition::UNPACKED,
            State::False,
            self.reason,
            self.message,
        ));
        StatusPlan {
            phase: Some(Phase::Failing),
            forgets_source: true,
            conditions,
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
            ConditionChange::new(condition::VERIFIED, State::True, found, signers),
            ConditionChange::new(condition::COMPATIBLE, state, fits, range),
            ConditionChange::new(condition::UNPACKED, State::True, unpacked, message),
            unchanged(self.digest),
        ]
    }
}

fn unchanged(digest: &Digest) -> ConditionChange {
    ConditionChange::new(
        condition::SOURCE_MOVED,
        State::False,
        reason::SOURCE_UNCHANGED,
        format!("the source names {digest}"),
    )
}

impl SourceAnswer<'_> {
    fn conditions(&self, digest: &Digest) -> Vec<ConditionChange> {
        // A status that somebody emptied in part is made whole again.
        let mut conditions = vec![ConditionChange::default(
            condition::UNPACKED,
            State::True,
            reason::UNPACK_SUCCESSFUL,
            "Successfully unpacked the bundle",
        )];
        let kind = condition::SOURCE_MOVED;
        match self {
            Self::Pending => {}
            Self::Unchanged => conditions.push(unchanged(digest)),
            Self::Moved { source, now } => conditions.push(ConditionChange::new(
                kind,
                State::True,
                reason::SOURCE_MOVED,
                format!(
                    "{source} names {now} now; {digest} was unpacked and stays what this Bundle is"
                ),
            )),
            Self::Unknown(why) => conditions.push(ConditionChange::new(
                kind,
                State::Unknown,
                "SourceUnseen",
                *why,
            )),
        }
        conditions
    }
}
