//! Checks of the certificate authorities in the webhook registrations.

use std::collections::BTreeSet;

use super::{CheckResult, Observed};
use crate::diagnostic::{Finding, codes};

/// The check warns if the remaining validity of the last certificate authority is shorter than this
/// time, in seconds. bundle-webhook normally renews an authority a year before its end.
const SOON: i64 = 30 * 24 * 3600;

/// `caBundle` of one webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CaBundle {
    /// `caBundle` is not set.
    Empty,
    /// The value is not a base64-encoded list of certificates. Contains the reason.
    Invalid(String),
    /// The certificates in `caBundle`.
    Certificates(Vec<Certificate>),
}

/// A certificate, with times in Unix seconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// Fingerprint of the certificate, as text for messages.
    pub fingerprint: String,
    /// Start of the validity, in Unix seconds.
    pub not_before: i64,
    /// End of the validity, in Unix seconds.
    pub not_after: i64,
}

/// Checks the authorities of all webhooks. `webhooks` has the name and `caBundle` of each webhook.
/// `date` formats a time.
pub fn authorities(
    webhooks: Observed<Vec<(String, CaBundle)>>,
    now: i64,
    date: impl Fn(i64) -> String,
) -> CheckResult {
    const CHECK: &str = "certificate";
    const SUBJECT: &str = "caBundle of the registrations";
    let code = codes::doctor::AUTHORITY_INVALID;
    let hint = "a running pod with permission to patch the registrations writes caBundle within \
     seconds; see the results of the checks `pods` and `permissions`";
    let problem = |message: String| {
        CheckResult::of(
            CHECK,
            Finding::error(code, message).about(SUBJECT).hint(hint),
        )
    };
    let webhooks = match webhooks {
        Observed::Found(webhooks) if !webhooks.is_empty() => webhooks,
        Observed::Found(_) | Observed::Missing => {
            return problem("no registration with a webhook exists".to_owned());
        }
        Observed::Forbidden(message) => return CheckResult::forbidden(CHECK, SUBJECT, message),
        Observed::Failed(message) => return CheckResult::no_response(CHECK, SUBJECT, message),
    };
    let mut until = i64::MAX;
    let mut sets = BTreeSet::new();
    for (name, bundle) in &webhooks {
        let certificates = match bundle {
            CaBundle::Empty => return problem(format!("{name}: it is empty")),
            CaBundle::Invalid(reason) => return problem(format!("{name}: {reason}")),
            CaBundle::Certificates(certificates) => certificates,
        };
        let valid = certificates
            .iter()
            .filter(|one| one.not_before <= now && now <= one.not_after);
        let Some(end) = valid.map(|one| one.not_after).max() else {
            let last = certificates.iter().map(|one| one.not_after).max();
            return problem(match last {
                Some(end) if end < now => format!("{name}: it expired on {}", date(end)),
                Some(_) => format!("{name}: no certificate in it is valid yet"),
                None => format!("{name}: it has no certificate"),
            });
        };
        until = until.min(end);
        let prints: BTreeSet<&str> = certificates
            .iter()
            .map(|one| one.fingerprint.as_str())
            .collect();
        sets.insert(prints);
    }
    if sets.len() > 1 {
        return problem(
            "the webhooks have different certificate authorities in caBundle, but only one \
            authority is correct"
                .to_owned(),
        );
    }
    let message = format!("valid until {}", date(until));
    if until.saturating_sub(now) < SOON {
        let finding = Finding::warning(code, format!("{message}, and not renewed yet"));
        return CheckResult::of(CHECK, finding.about(SUBJECT).hint(hint));
    }
    CheckResult::ok(CHECK, SUBJECT, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::CheckState::{Ok as Passed, Problem, Unknown, Warning};

    const NOW: i64 = 1_000_000_000;
    const YEAR: i64 = 365 * 24 * 3600;

    fn certificate(fingerprint: &str, from: i64, until: i64) -> Certificate {
        Certificate {
            fingerprint: fingerprint.to_owned(),
            not_before: NOW + from,
            not_after: NOW + until,
        }
    }

    #[test]
    fn authority_must_be_valid_and_the_same_in_all_webhooks() {
        let bundle = |all: &[(&str, i64, i64)]| {
            let all = all
                .iter()
                .map(|(print, from, until)| certificate(print, *from, *until));
            CaBundle::Certificates(all.collect())
        };
        let valid = || bundle(&[("a", -5, YEAR)]);
        for (first, second, state, part) in [
            (valid(), valid(), Passed, "valid until day "),
            (
                bundle(&[("a", -9, -5), ("b", -5, YEAR)]),
                bundle(&[("a", -9, -5), ("b", -5, YEAR)]),
                Passed,
                "valid until",
            ),
            (
                valid(),
                bundle(&[("a", -5, -1)]),
                Problem,
                "two: it expired on day ",
            ),
            (valid(), bundle(&[("a", 5, YEAR)]), Problem, "valid yet"),
            (valid(), bundle(&[]), Problem, "no certificate"),
            (
                valid(),
                bundle(&[("b", -5, YEAR)]),
                Problem,
                "different certificate authorities",
            ),
            (CaBundle::Empty, valid(), Problem, "one: it is empty"),
            (
                CaBundle::Invalid("not base64".into()),
                valid(),
                Problem,
                "one: not base64",
            ),
            (
                bundle(&[("a", -5, SOON - 1)]),
                bundle(&[("a", -5, SOON - 1)]),
                Warning,
                "not renewed yet",
            ),
        ] {
            let webhooks = vec![("one".to_owned(), first), ("two".to_owned(), second)];
            let date = |time: i64| format!("day {}", (time - NOW) / 86400);
            let result = authorities(Observed::Found(webhooks), NOW, date);
            assert_eq!(result.state, state, "{result:?}");
            assert!(result.message.contains(part), "{result:?}");
        }
    }

    #[test]
    fn registrations_that_were_not_read_are_unknown() {
        for (observed, state) in [
            (Observed::Missing, Problem),
            (Observed::Found(vec![]), Problem),
            (Observed::Forbidden("no".to_owned()), Unknown),
            (Observed::Failed("late".to_owned()), Unknown),
        ] {
            let result = authorities(observed, NOW, |time| time.to_string());
            assert_eq!(result.state, state, "{result:?}");
        }
    }
}
