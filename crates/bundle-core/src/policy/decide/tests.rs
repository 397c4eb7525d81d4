//! Decision table: signatures, policies and class. In these tests keys are names, and no
//! cryptography is involved.

use serde_json::json;

use super::*;
use crate::policy::{IdentityName, KeyId, KeyParser, Meaning, Rejection, RootId};

fn reference() -> PinnedReference {
    let reference: Reference = "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(crate::reference::Digest::of(b"content"))
}

fn found(keys: &[&str]) -> Vec<SignatureResult> {
    keys.iter()
        .map(|key| SignatureResult(Ok(accepted(Signer::Key(KeyId::new(*key)), Meaning::Signed))))
        .collect()
}

fn accepted(signer: Signer, meaning: Meaning) -> ValidSignature {
    ValidSignature {
        signer,
        meaning,
        annotations: std::collections::BTreeMap::new(),
        signed_at: None,
        form: "test",
        checked: Vec::new(),
    }
}

/// Returns a valid signature or attestation by the identity `issuer/subject`. The certificate is
/// valid under `root`.
fn certified(name: &str, root: &str, meaning: Meaning) -> SignatureResult {
    let (issuer, subject) = name.split_once('/').unwrap();
    let name = IdentityName {
        issuer: issuer.to_owned(),
        subject: subject.to_owned(),
    };
    let roots = [RootId::new(root)].into();
    SignatureResult(Ok(accepted(Signer::Identity { name, roots }, meaning)))
}

/// Parser for tests. The text of a key or root is its identity. The text `?` is invalid.
struct AsWritten;

impl KeyParser for AsWritten {
    fn key(&mut self, pem: &str) -> Result<KeyId, Finding> {
        match pem {
            "?" => Err(Finding::error(codes::trust::KEY_UNREADABLE, "no key")),
            key => Ok(KeyId::new(key)),
        }
    }

    fn root(&mut self, text: Option<&str>) -> Result<RootId, Finding> {
        match text {
            Some("?") => Err(Finding::error(codes::trust::ROOT_EXPIRED, "expired")),
            text => Ok(RootId::new(text.unwrap_or("public"))),
        }
    }
}

/// Returns a policy from `name[!]:threshold:keys`. `!` means warn mode. The key `?` is invalid.
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
    found: Result<&[SignatureResult], &Unavailable>,
    class: ClassSignatures,
) -> PolicyDecision {
    let policies: Vec<_> = policies.iter().map(|text| policy(text)).collect();
    let ready: Vec<_> = policies
        .iter()
        .map(|policy| policy.with_keys(&mut AsWritten))
        .collect();
    decide(&reference(), found, &ready, class)
}

/// Returns a short word for a decision: `yes`, `yes+w` (warnings), `yes+u` (warnings, not to be
/// cached), `no`, `unknown`.
fn word(decision: &PolicyDecision) -> &'static str {
    match decision {
        PolicyDecision::Satisfied(s) => match (s.warnings.is_empty(), s.is_cacheable) {
            (true, true) => "yes",
            (false, true) => "yes+w",
            (false, false) => "yes+u",
            (true, false) => "unsaid",
        },
        PolicyDecision::Refused(_) => "no",
        PolicyDecision::Unknown(_) => "unknown",
    }
}

type Row<'a> = (&'a [&'a str], Option<&'a [&'a str]>, &'a str, &'a str);

#[test]
fn decides_by_signatures_policies_and_class() {
    let down = Unavailable(Finding::error(codes::registry::UNREACHABLE, "no answer"));
    // Columns: policies, keys that signed (`None`: the registry does not respond), decision under
    // IfPolicy, decision under Required.
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
fn ignores_policies_for_other_references() {
    let other: Reference = "registry.example.com/other/web:1".parse().unwrap();
    let policies = [Arc::new(policy("p:1:a"))];
    assert_eq!(matching(&other, &policies), []);
    assert_eq!(matching(reference().reference(), &policies), policies);
}

#[test]
fn rejection_names_reference_policy_authorities_signatures_and_next_step() {
    let mut signatures = found(&["c"]);
    signatures.push(SignatureResult(Err(Rejection::OtherDigest(
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
            "{}: SignaturePolicy/releases requires signatures by 2 different keys of `n0`, `n1` (accepted: 0), but the registry has 2 signatures: one by another key (key hint c), one for another digest (sha256:00)",
            reference()
        )
    );
    assert!(
        findings
            .first()
            .unwrap()
            .hint
            .as_ref()
            .unwrap()
            .contains("kubectl bundle sign")
    );
}

#[test]
fn warning_names_mode_warn() {
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
    let ready = [strict.with_keys(&mut AsWritten)];
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

/// Returns a policy with authorities as `issuer/subject`. A leading `~` marks a regular expression.
fn keyless(threshold: usize, identities: &[&[&str]], attestations: &[&str]) -> Policy {
    let half = |exact: &str, pattern: &str, text: &str| match text.strip_prefix('~') {
        Some(text) => (pattern.to_owned(), json!(text)),
        None => (exact.to_owned(), json!(text)),
    };
    let authority = |names: &&[&str]| {
        let identities: Vec<serde_json::Value> = names
            .iter()
            .map(|name| {
                let (issuer, subject) = name.split_once('/').unwrap();
                let fields = [
                    half("issuer", "issuerRegExp", issuer),
                    half("subject", "subjectRegExp", subject),
                ];
                fields.into_iter().collect::<serde_json::Map<_, _>>().into()
            })
            .collect();
        let attestations: Vec<_> = attestations
            .iter()
            .map(|predicate| json!({"predicateType": predicate}))
            .collect();
        json!({"keyless": {"identities": identities}, "attestations": attestations})
    };
    let spec = json!({
        "images": [{"glob": "**"}],
        "threshold": threshold,
        "authorities": identities.iter().map(authority).collect::<Vec<_>>(),
    });
    Policy::parse("keyless", &spec).unwrap()
}

fn met(policy: &Policy, found: &[SignatureResult]) -> bool {
    let ready = [policy.with_keys(&mut AsWritten)];
    let decision = decide(&reference(), Ok(found), &ready, ClassSignatures::Required);
    matches!(decision, PolicyDecision::Satisfied(_))
}

#[test]
fn identity_requires_issuer_subject_and_trust_root() {
    let signed = |name: &str, root: &str| vec![certified(name, root, Meaning::Signed)];
    let exact = keyless(1, &[&["google/ann@example.com"]], &[]);
    assert!(met(&exact, &signed("google/ann@example.com", "public")));
    for (name, root) in [
        ("github/ann@example.com", "public"),
        ("google/bob@example.com", "public"),
        ("google/ann@example.com.evil.com", "public"),
        ("google/ann@example.co", "public"),
        ("google/Ann@example.com", "public"),
        ("Google/ann@example.com", "public"),
        ("google/\u{430}nn@example.com", "public"),
        ("google/ann@example.com ", "public"),
        ("google/ann@example.com", "another"),
    ] {
        assert!(!met(&exact, &signed(name, root)), "{name} under {root}");
    }
    // One signature has the right issuer, and another one has the right subject. Neither identity
    // is accepted.
    let halves = [
        signed("google/eve@example.com", "public"),
        signed("evil/ann@example.com", "public"),
    ]
    .concat();
    assert!(!met(&exact, &halves));

    let wild = keyless(1, &[&["google/*@example.com"]], &[]);
    assert!(!met(&wild, &signed("google/ann@example.com", "public")));
    let pattern = keyless(1, &[&[r"~goog.*/~[a-z]+@example\.com"]], &[]);
    assert!(met(&pattern, &signed("google/ann@example.com", "public")));
    assert!(!met(
        &pattern,
        &signed("google/ann@example.com.evil.com", "public")
    ));
    assert!(!met(&pattern, &signed("google/ann@exampleXcom", "public")));
    // A key is never an identity, even if its name has the form of an identity.
    assert!(!met(&pattern, &found(&["google/ann@example.com"])));
}

#[test]
fn assigns_as_many_distinct_signers_as_possible() {
    let signed = |names: &[&str]| -> Vec<_> {
        let each = names.iter();
        each.map(|name| certified(name, "public", Meaning::Signed))
            .collect()
    };
    let two = keyless(2, &[&["~g/~.*"], &["g/ann"]], &[]);
    // In each order, `ann` is assigned to the authority that accepts only `ann`.
    assert!(met(&two, &signed(&["g/ann", "g/bob"])));
    assert!(met(&two, &signed(&["g/bob", "g/ann"])));
    assert!(!met(&two, &signed(&["g/ann", "g/ann"])));
    assert!(!met(&two, &signed(&["g/bob", "g/cat"])));
    let three = keyless(3, &[&["g/a", "g/b"], &["g/b", "g/c"], &["g/a"]], &[]);
    assert!(met(&three, &signed(&["g/a", "g/b", "g/c"])));
    assert!(!met(&three, &signed(&["g/a", "g/b"])));
}

#[test]
fn required_attestations_must_be_by_the_same_authority() {
    const SLSA: &str = "https://slsa.dev/provenance/v1";
    let attested = |name: &str, predicate: &str| {
        certified(name, "public", Meaning::Attested(predicate.to_owned()))
    };
    let signed = |name: &str| certified(name, "public", Meaning::Signed);
    let policy = keyless(1, &[&["g/ann"]], &[SLSA]);
    assert!(met(&policy, &[signed("g/ann"), attested("g/ann", SLSA)]));
    assert!(!met(&policy, &[signed("g/ann")]));
    assert!(!met(&policy, &[attested("g/ann", SLSA)]));
    assert!(!met(&policy, &[signed("g/ann"), attested("g/eve", SLSA)]));
    assert!(!met(
        &policy,
        &[
            signed("g/ann"),
            attested("g/ann", "https://slsa.dev/provenance/v11")
        ]
    ));
    assert!(!met(&policy, &[signed("g/eve"), attested("g/ann", SLSA)]));
    // An attestation by an identity is not a signature by this identity.
    let plain = keyless(1, &[&["g/ann"]], &[]);
    assert!(!met(&plain, &[attested("g/ann", SLSA)]));

    let ready = [policy.with_keys(&mut AsWritten)];
    let found = [signed("g/ann")];
    let decision = decide(&reference(), Ok(&found), &ready, ClassSignatures::Required);
    let PolicyDecision::Refused(findings) = decision else {
        panic!("{decision:?}")
    };
    assert!(
        findings
            .iter()
            .any(|one| one.code == codes::trust::UNATTESTED)
    );
}

#[test]
fn policy_with_unusable_root_rejects_matching_references() {
    let policy = keyless(1, &[&["g/ann"]], &[]).with_default_root("?");
    assert!(!met(&policy, &[certified("g/ann", "?", Meaning::Signed)]));
}

#[test]
fn reasons_of_many_policies_are_bounded() {
    for mode in ["", "!"] {
        let names: Vec<String> = (0..400).map(|n| format!("p{n}{mode}:1:a")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = found(&["b"]);
        let decision = run(&names, Ok(&found), ClassSignatures::Required);
        let reasons = match &decision {
            PolicyDecision::Satisfied(satisfied) => &satisfied.warnings,
            PolicyDecision::Refused(findings) | PolicyDecision::Unknown(findings) => findings,
        };
        assert_eq!(reasons.len(), 101, "{}", word(&decision));
    }
}
