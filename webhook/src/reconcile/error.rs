//! Why a reconcile could not go on, and when it is worth trying again.
//! Not here: how it is told (status::writer, events).

use std::time::Duration;

use bundle_core::diagnostic::{Code, Finding, Findings, Outcome, codes};
use bundle_core::plan::backoff;
use bundle_core::plan::conditions::bounded;
use rand::Rng as _;

use crate::reconcile::api::object;
use crate::reconcile::deployment::inventory::InventoryStoreError;

/// When to try again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::reconcile) enum RetryPolicy {
    /// Something passing is in the way: soon, then less and less often, up to half a minute.
    Soon,
    /// Somebody has to do something about it that no watch tells: up to every five minutes.
    Slowly,
    /// The same request fails each time: up to every ten minutes.
    Rarely,
    /// After this time.
    At(Duration),
    /// A change of the object, or of what it names, comes with an event.
    OnChange,
}

/// Why it could not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::reconcile) struct ReconcileError {
    /// Its entry in the catalogue.
    pub(in crate::reconcile) code: Code,
    /// The reason of the condition.
    pub(in crate::reconcile) reason: &'static str,
    /// For people.
    pub(in crate::reconcile) message: String,
    pub(in crate::reconcile) retry: RetryPolicy,
    /// The keys of objects that are invalid: if somebody changes one, the next attempt may succeed.
    pub(in crate::reconcile) objects: Vec<String>,
}

impl ReconcileError {
    pub(in crate::reconcile) fn new(
        code: Code,
        reason: &'static str,
        message: impl Into<String>,
        retry: RetryPolicy,
    ) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry,
            objects: Vec::new(),
        }
    }

    /// The API server did not do what was asked of it, about nothing in particular.
    pub(in crate::reconcile) fn api(
        doing: &str,
        reason: &'static str,
        error: &kube::Error,
    ) -> Self {
        Self::new(
            codes::cluster::UNREACHABLE,
            reason,
            format!("cannot {doing}: {}", object::told(error)),
            RetryPolicy::Soon,
        )
    }

    /// What belongs to a BundleDeployment could not be read or recorded, so nothing was changed.
    pub(in crate::reconcile) fn inventory(
        reason: &'static str,
        error: &InventoryStoreError,
    ) -> Self {
        let code = match error {
            InventoryStoreError::Claimed { .. } | InventoryStoreError::Owned { .. } => {
                codes::install::OWNED_BY_OTHER
            }
            _ => codes::install::INVENTORY_FAILED,
        };
        Self::new(code, reason, error.to_string(), RetryPolicy::Soon)
    }

    /// Findings of a rule; the first error gives the code.
    pub(in crate::reconcile) fn findings(
        reason: &'static str,
        findings: &Findings,
        retry: RetryPolicy,
    ) -> Self {
        let code = findings
            .errors()
            .next()
            .map_or(codes::install::APPLY_FAILED, |finding| finding.code);
        let told: Vec<_> = findings.errors().map(tell).collect();
        Self::new(code, reason, told.join("; "), retry)
    }

    /// Whether it is merely not known now.
    pub(in crate::reconcile) fn cannot_tell(&self) -> bool {
        self.code.outcome == Outcome::CannotTell
    }
}

/// A finding in one line, its hint included.
pub(in crate::reconcile) fn tell(finding: &Finding) -> String {
    match &finding.hint {
        Some(hint) => format!("{finding} ({hint})"),
        None => finding.to_string(),
    }
}

/// Many complaints as one message: sorted, each once, the first `most` of them.
pub(in crate::reconcile) fn list(mut complaints: Vec<String>, most: usize) -> String {
    complaints.sort();
    complaints.dedup();
    let rest = complaints.len().saturating_sub(most);
    complaints.truncate(most);
    let mut text = bounded(&complaints.join("; "), 8192);
    if rest > 0 {
        text = format!("{text}; and {rest} more");
    }
    text
}

impl RetryPolicy {
    /// How long to wait after so many failures in a row; none: until something changes.
    pub(in crate::reconcile) fn after(self, failures: u32) -> Option<Duration> {
        let spread = rand::rng().random::<f64>();
        let (first, most) = match self {
            Self::Soon => (Duration::from_millis(500), Duration::from_secs(30)),
            Self::Slowly => (Duration::from_secs(2), Duration::from_secs(300)),
            Self::Rarely => (Duration::from_secs(2), Duration::from_secs(600)),
            Self::At(pause) => return Some(pause),
            Self::OnChange => return None,
        };
        Some(backoff::delay(first, most, failures, spread))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_in_one_order_and_bounded() {
        let complaints = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        assert_eq!(list(complaints(&["b", "a", "b"]), 5), "a; b");
        assert_eq!(list(complaints(&["b", "a", "c"]), 1), "a; and 2 more");
    }

    #[test]
    fn what_no_time_heals_is_not_tried_again() {
        assert_eq!(RetryPolicy::OnChange.after(3), None);
        assert!(RetryPolicy::Soon.after(1).unwrap() < Duration::from_secs(1));
        assert!(RetryPolicy::Slowly.after(100).unwrap() <= Duration::from_secs(360));
        assert!(RetryPolicy::Rarely.after(1).unwrap() < Duration::from_secs(3));
        assert!(RetryPolicy::Rarely.after(100).unwrap() <= Duration::from_secs(720));
        let pause = Duration::from_secs(7);
        assert_eq!(RetryPolicy::At(pause).after(100), Some(pause));
    }
}
