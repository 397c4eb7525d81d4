//! Messages of checks that fail. `cargo xtask gen` copies `messages.txt` to the page about
//! diagnostics.

use std::fmt::Write as _;

use serde_json::json;

use super::admission::{ExpectedService, Probe, registration, review};
use super::authority::{CaBundle, authorities};
use super::client::{Programs, clock, plugin};
use super::definitions::{Definition, definitions};
use super::permissions::{CallerPermissions, caller, pod};
use super::policies::{ObservedPolicy, policies};
use super::workload::{Workload, pods};
use super::{CheckResult, CheckState, Observed};
use crate::registration::VALIDATING;
use crate::rights::AccessReview;

const RECORDED: &str = include_str!("messages.txt");

/// Returns results of failed checks: at least one for each code.
fn failed() -> Vec<CheckResult> {
    let programs = Programs {
        running: "/home/ana/bin/kubectl-bundle".to_owned(),
        on_path: vec!["/usr/local/bin/kubectl-bundle".to_owned()],
        verbs: Vec::new(),
    };
    let definition = json!({
        "metadata": {"name": "bundles.core.rukpak.io"},
        "spec": {"names": {"kind": "Bundle"}},
    });
    let definition = Definition {
        expected: &definition,
        found: Observed::Missing,
    };
    let service = ExpectedService {
        namespace: "bundle-system",
        name: "bundle-webhook",
    };
    let empty = ("vbundles.core.rukpak.io".to_owned(), CaBundle::Empty);
    let untrusted = Probe::Rejected {
        code: 500,
        message: "Internal error occurred: failed calling webhook \"vbundles.core.rukpak.io\": no endpoints available for service \"bundle-webhook\"".to_owned(),
    };
    let waiting = Workload {
        desired: 2,
        ready: 0,
        reason: Some("pod bundle-webhook-7d4b9: ImagePullBackOff".to_owned()),
    };
    let denied = AccessReview::resource("list", "core.rukpak.io", "bundles", None, None);
    let policy = ObservedPolicy {
        name: "releases".to_owned(),
        ready: Some((false, "Secret release-key does not exist".to_owned())),
        roots: Vec::new(),
    };
    let permissions = CallerPermissions {
        denied: vec!["get", "status", "deploy"],
        ..CallerPermissions::default()
    };
    let date = |_| "2026-01-01".to_owned();
    let mut results = vec![plugin("1.0.0", &programs)];
    results.extend(definitions(vec![definition], &Observed::Missing));
    results.extend([
        registration(
            "validatingwebhookconfiguration bundle-webhook",
            VALIDATING,
            Observed::Missing,
            service,
        ),
        authorities(Observed::Found(vec![empty]), 0, date),
        review(untrusted, "BUNDLE-REVIEW-001"),
        review(Probe::Accepted, "BUNDLE-REVIEW-001"),
        pods("deployment bundle-webhook", Observed::Found(waiting)),
        pod(
            "serviceaccount bundle-webhook",
            Observed::Found(vec![(denied, false)]),
        ),
        clock(Some(0), 600),
    ]);
    results.extend(policies(Observed::Found(vec![policy]), 0, date));
    results.extend([
        caller("ana", Observed::Found(permissions)),
        clock(None, 600),
    ]);
    results
}

#[test]
fn messages_of_failed_checks_are_recorded() {
    let mut text = String::new();
    for result in failed() {
        let severity = match result.state {
            CheckState::Warning => "warning",
            _ => "error",
        };
        let code = result.code.unwrap();
        let _ = writeln!(
            text,
            "{severity}: {}: {} [{code}]",
            result.subject, result.message
        );
        if let Some(hint) = result.hint {
            let _ = writeln!(text, "  hint: {hint}");
        }
    }
    assert_eq!(text, RECORDED, "copy the left side to messages.txt");
}
