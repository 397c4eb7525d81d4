//! The decision as a table: what was found, under which policies and class.
//! Not here: cryptography; keys are names here.

use serde_json::json;

use super::*;
use crate::policy::found::{Accepted, Rejection};

fn reference() -> PinnedReference {
    let reference: Reference = "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(crate::reference::Digest::of(b"content"))
}

fn found(keys: &[&str]) -> Vec<SignatureFound> {
    keys.iter()
        .map(|key| {
            SignatureFound(Ok(Accepted {
                key: KeyId::new(*key),
                annotations: std::collections::BTreeMap::new(),
            }))
        })
        .collect()
}

/// `name[!]:threshold:keys`, a `!` for warn mode; a key `?` cannot be read.
fn policy(text: &str) -> Policy {
    let mut parts = text.split(':');
    let name = parts.next().unwrap();
    let threshold: usize = parts.next().unwrap().parse().unwrap();
    let authorities: Vec<_> = parts
        .next()
        .unwrap()
        .split(',')
        .enumerate()
        .map(|(i, key)| json!({"name": format!("n{i}"), "key": {"data": key}}))
        .collect();
    let spec = json!({
        "images": [{"glob": "registry.example.com/team/**"}],
        "mode": if name.ends_with('!') { "warn" } else { "enforce" },
        "threshold": threshold,
        "authorities": authorities,
    });
    Policy::parse(name.trim_end_matches('!'), &spec).unwrap()
}

fn run(
    policies: &[&str],
    found: Result<&[SignatureFound], &Unavailable>,
    class: ClassSignatures,
) -> PolicyDecision {
    let policies: Vec<_> = policies.iter().map(|text| policy(text)).collect();
    let ready: Vec<_> = policies
        .iter()
        .map(|policy| {
            policy.ready(|pem| match pem {
                "?" => Err(Finding::error(codes::trust::KEY_UNREADABLE, "no key")),
                key => Ok(KeyId::new(key)),
            })
        })
        .collect();
    decide(&reference(), found, &ready, class)
}

/// A short word for a decision: `yes`, `yes+w` (warnings), `yes+u` (warnings, not to be remembered), `no`, `unknown`.
fn word(decision: &PolicyDecision) -> &'static str {
    match decision {
        PolicyDecision::Satisfied(s) => match (s.warnings.0.is_empty(), s.rememberable) {
            (true, true) => "yes",
            (false, true) => "yes+w",
            (false, false) => "yes+u",
            (true, false) => "unsaid",
        },
        PolicyDecision::Refused(_) => "no",
        PolicyDecision::CannotTell(_) => "unknown",
    }
}

type Row<'a> = (&'a [&'a str], Option<&'a [&'a str]>, &'a str, &'a str);

#[test]
fn the_table() {
    let down = Unavailable(Finding::error(codes::registry::UNREACHABLE, "no answer"));
    // Policies, keys that signed (`None`: the registry does not answer), then the word under IfPolicy and under Required.
    let table: &[Row] = &[
        (&[], Some(&[]), "yes+w", "no"),
        (&[], Some(&["a"]), "yes+w", "no"),
        (&[], None, "yes+w", "no"),
        (&["p:1:a"], Some(&["a"]), "yes", "yes"),
        (&["p:1:a"], Some(&["b"]), "no", "no"),
        (&["p:1:a"], Some(&[]), "no", "no"),
        (&["p:1:a"], None, "unknown", "unknown"),
        (&["p:1:a,b"], Some(&["b"]), "yes", "yes"),
        (&["p:2:a,b"], Some(&["b"]), "no", "no"),
        (&["p:2:a,b"], Some(&["b", "b"]), "no", "no"),
        (&["p:2:a,b"], Some(&["b", "a"]), "yes", "yes"),
        (&["p:2:a,a,b"], Some(&["a", "a"]), "no", "no"),
        (&["p:2:a,a"], Some(&["a"]), "no", "no"),
        (&["p:1:a", "q:1:b"], Some(&["a"]), "no", "no"),
        (&["p:1:a", "q:1:b"], Some(&["a", "b"]), "yes", "yes"),
        (&["p:1:?"], Some(&["a"]), "no", "no"),
        (&["p:1:a,?"], Some(&["a"]), "no", "no"),
        (&["p:1:?"], None, "no", "no"),
        (&["p:1:?", "q:1:a"], None, "no", "no"),
        (&["p!:1:a"], Some(&["a"]), "yes", "yes"),
        (&["p!:1:a"], Some(&["b"]), "yes+w", "no"),
        (&["p!:1:a"], None, "yes+u", "unknown"),
        (&["p!:1:?"], Some(&["a"]), "yes+w", "no"),
        (&["p!:1:a", "q:1:b"], Some(&["b"]), "yes+w", "yes+w"),
        (&["p!:1:a", "q:1:b"], Some(&["a"]), "no", "no"),
        (&["p!:1:a", "q:1:b"], None, "unknown", "unknown"),
    ];
    for (policies, keys, if_policy, required) in table {
        let keys = keys.map(found);
        let found = keys.as_deref().ok_or(&down);
        for (class, expected) in [
            (ClassSignatures::IfPolicy, if_policy),
            (ClassSignatures::Required, required),
        ] {
            let decision = run(policies, found, class);
            assert_eq!(
                word(&decision),
                *expected,
                "{policies:?} {keys:?} {class:?}: {decision:?}"
            );
        }
    }
}

#[test]
fn policies_for_other_references_say_nothing() {
    let other: Reference = "registry.example.com/other/web:1".parse().unwrap();
    let policies = [policy("p:1:a")];
    assert!(!needs_signatures(&other, &policies));
    assert!(needs_signatures(reference().reference(), &policies));
}

#[test]
fn a_refusal_names_reference_policy_authorities_what_was_found_and_what_to_do() {
    let mut signatures = found(&["c"]);
    signatures.push(SignatureFound(Err(Rejection::OtherDigest(
        "sha256:00".into(),
    ))));
    let PolicyDecision::Refused(findings) = run(
        &["releases:2:a,b"],
        Ok(&signatures),
        ClassSignatures::IfPolicy,
    ) else {
        panic!("not refused")
    };
    assert_eq!(
        findings.to_string(),
        format!(
            "{}: SignaturePolicy/releases requires signatures by 2 different keys of `n0`, `n1`, has 0, and the registry holds 2 signatures: one by another key (hint c), one for another digest (sha256:00)",
            reference()
        )
    );
    assert!(
        findings.0[0]
            .hint
            .as_ref()
            .unwrap()
            .contains("kubectl bundle sign")
    );
}

#[test]
fn a_warning_says_that_it_is_one() {
    let PolicyDecision::Satisfied(satisfied) = run(&["p!:1:a"], Ok(&[]), ClassSignatures::IfPolicy)
    else {
        panic!("not let in")
    };
    assert!(!satisfied.warnings.has_errors());
    assert!(satisfied.warnings.to_string().contains("mode: warn"));
}

#[test]
fn downgrades_are_forbidden_by_any_policy_that_matches() {
    let mut spec = json!({
        "images": [{"glob": "**"}],
        "authorities": [{"key": {"data": "a"}}],
    });
    spec["versions"] = json!({"allowDowngrade": false});
    let strict = Policy::parse("strict", &spec).unwrap();
    let ready = [strict.ready(|pem| Ok(KeyId::new(pem)))];
    let signatures = found(&["a"]);
    let decision = decide(
        &reference(),
        Ok(&signatures),
        &ready,
        ClassSignatures::Required,
    );
    let PolicyDecision::Satisfied(satisfied) = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(satisfied.no_downgrade, ["strict"]);
}
