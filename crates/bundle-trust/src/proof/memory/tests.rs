//! Cached examinations: expiry, and the inputs that a result depends on.

use std::cell::Cell;
use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use serde_json::{Value, json};

use super::*;
use crate::keys::{KeyKind, PrivateKey};
use crate::sign;

const ROOT: &str = include_str!("../../../testdata/keyless/trusted_root.json");
const UNTIMED: &str = include_str!("../../../testdata/keyless/untimed.bundle.json");
const DIGEST: &str = include_str!("../../../testdata/keyless/subject.txt");
const NOW: Timestamp = Timestamp::constant(1_900_000_000, 0);

type Found = Result<Vec<RawSignature>, Unavailable>;

fn pinned(digest: &Digest) -> PinnedReference {
    let reference: Reference = "registry.example.com/team/web:1".parse().unwrap();
    reference.pin(digest.clone())
}

fn content() -> PinnedReference {
    pinned(&Digest::of(b"content"))
}

fn signed(key: &PrivateKey, reference: &PinnedReference) -> RawSignature {
    RawSignature {
        bytes: sign::sign_digest(key, reference, &BTreeMap::new()).unwrap(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

fn by_key(key: &PrivateKey) -> Policy {
    let spec = json!({
        "images": [{"glob": "registry.example.com/team/**"}],
        "authorities": [{"name": "release", "key": {"data": key.public().to_pem()}}],
    });
    Policy::read("releases", &spec)
}

fn keyless(root: &str) -> Policy {
    let spec = json!({
        "images": [{"glob": "registry.example.com/team/**"}],
        "authorities": [{"name": "workflow", "keyless": {
            "identities": [{"issuerRegExp": "https://.*", "subjectRegExp": "https://github.com/example/.*"}],
            "trustRoot": {"configMapRef": {"name": "root"}},
        }}],
    });
    let map = bundle_core::policy::ReferencedText::Found(root.to_owned());
    Policy::read("releases", &spec).with_config_maps(&BTreeMap::from([("root".to_owned(), map)]))
}

fn bundle(text: &str) -> RawSignature {
    RawSignature {
        bytes: text.into(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

/// Returns the time at which the log integrated the fixture.
fn logged() -> Timestamp {
    let made: Value = serde_json::from_str(UNTIMED).unwrap();
    let at = &made["verificationMaterial"]["tlogEntries"][0]["integratedTime"];
    Timestamp::from_second(at.as_str().unwrap().parse().unwrap()).unwrap()
}

fn is_admitted(
    memory: &ExaminationCache,
    found: &Found,
    policies: &[Policy],
    now: Timestamp,
) -> bool {
    let class = ClassSignatures::Required;
    let decided = memory.decide(content(), found, policies, class, now);
    assert_eq!(
        decided,
        super::super::decide(content(), found, policies, class, now)
    );
    decided.is_ok()
}

#[test]
fn caches_examination_per_digest_keys_roots_and_signatures() {
    let (key, other) = (
        PrivateKey::unwritten(KeyKind::EcdsaP256),
        PrivateKey::unwritten(KeyKind::EcdsaP256),
    );
    let memory = ExaminationCache::default();
    let found: Found = Ok(vec![signed(&key, &content())]);
    for _ in 0..3 {
        assert!(is_admitted(&memory, &found, &[by_key(&key)], NOW));
    }
    assert_eq!(memory.examinations_performed(), 1);
    // Without policies, and with policies for another key, the result changes immediately.
    assert!(!is_admitted(&memory, &found, &[], NOW));
    assert!(!is_admitted(&memory, &found, &[by_key(&other)], NOW));
    assert_eq!(memory.examinations_performed(), 3);
    // A cached result is used only for the same content digest and the same signature: equal bytes,
    // annotations, artifact type and `unread`.
    let replayed = memory.decide(
        pinned(&Digest::of(b"other")),
        &found,
        &[by_key(&key)],
        ClassSignatures::Required,
        NOW,
    );
    assert!(replayed.is_err());
    for change in [
        (|raw| raw.bytes.push(b' ')) as fn(&mut RawSignature),
        |raw| raw.artifact_type.push('x'),
        |raw| drop(raw.annotations.insert("a".into(), "b".into())),
        |raw| raw.unread = Some(NotReadReason::CountLimit { limit: 1 }),
    ] {
        let before = memory.examinations_performed();
        let mut changed = found.clone().unwrap();
        change(&mut changed[0]);
        is_admitted(&memory, &Ok(changed), &[by_key(&key)], NOW);
        assert_eq!(memory.examinations_performed(), before + 1);
    }
    assert!(is_admitted(&memory, &found, &[by_key(&key)], NOW));
}

#[test]
fn unavailable_signatures_are_not_cached() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let memory = ExaminationCache::default();
    let down = Unavailable(Finding::error(codes::registry::UNREACHABLE, "no answer"));
    for _ in 0..2 {
        let decided = memory.decide(
            content(),
            &Err(down.clone()),
            &[by_key(&key)],
            ClassSignatures::IfPolicy,
            NOW,
        );
        assert!(decided.unwrap_err().is_unknown);
    }
    assert_eq!(memory.examinations_performed(), 0);
    assert!(is_admitted(
        &memory,
        &Ok(vec![signed(&key, &content())]),
        &[by_key(&key)],
        NOW
    ));
}

#[test]
fn cached_examination_expires_with_its_trust_root() {
    let end = logged() + SignedDuration::from_hours(2);
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root["tlogs"][0]["publicKey"]["validFor"]["end"] = end.to_string().into();
    let policies = [keyless(&root.to_string())];
    let reference = pinned(&DIGEST.trim().parse().unwrap());
    let memory = ExaminationCache::default();
    let decide = |now| {
        let class = ClassSignatures::IfPolicy;
        memory.decide(
            reference.clone(),
            &Ok(vec![bundle(UNTIMED)]),
            &policies,
            class,
            now,
        )
    };
    decide(end - SignedDuration::from_hours(1)).unwrap();
    decide(end).unwrap();
    assert_eq!(memory.examinations_performed(), 1);
    let refusal = decide(end + SignedDuration::from_secs(1)).unwrap_err();
    assert!(!refusal.is_unknown);
    assert!(
        refusal.findings.to_string().contains("it has expired"),
        "{}",
        refusal.findings
    );
    // Nothing was verified, because the root has expired.
    assert_eq!(memory.examinations_performed(), 2);
    // The policy has another trust root under the same name. Cached results of the former trust
    // root are not used.
    let other = [keyless(&ROOT.replace("2020-01-01", "2020-01-02"))];
    let class = ClassSignatures::IfPolicy;
    let under_other = memory.decide(reference, &Ok(vec![bundle(UNTIMED)]), &other, class, end);
    under_other.unwrap();
    assert_eq!(memory.examinations_performed(), 3);
}

#[test]
fn rejection_that_may_change_with_time_is_cached_for_a_minute() {
    let policies = [keyless(ROOT)];
    let reference = pinned(&DIGEST.trim().parse().unwrap());
    let memory = ExaminationCache::default();
    let decide = |now| {
        let class = ClassSignatures::IfPolicy;
        memory.decide(
            reference.clone(),
            &Ok(vec![bundle(UNTIMED)]),
            &policies,
            class,
            now,
        )
    };
    // The time in the log is in the future.
    let early = logged() - SignedDuration::from_secs(30);
    decide(early).unwrap_err();
    decide(early).unwrap_err();
    assert_eq!(memory.examinations_performed(), 1);
    decide(logged() + SignedDuration::from_mins(2)).unwrap();
    // After the clock is set back, the cached result is not used.
    decide(early).unwrap_err();
    assert_eq!(memory.examinations_performed(), 3);
}

#[test]
fn concurrent_requests_share_one_examination() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let memory = ExaminationCache::default();
    let found: Found = Ok((0..20).map(|_| signed(&key, &content())).collect());
    let policies = [by_key(&key)];
    let start = std::sync::Barrier::new(16);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                start.wait();
                let class = ClassSignatures::Required;
                memory
                    .decide(content(), &found, &policies, class, NOW)
                    .unwrap();
            });
        }
    });
    assert_eq!(memory.examinations_performed(), 1);
}

#[test]
fn evicts_oldest_examination_above_the_limit() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let memory = ExaminationCache::default();
    let policies = [by_key(&key)];
    let large = |number: usize| -> Found {
        let one = RawSignature {
            bytes: number.to_string().into(),
            ..RawSignature::default()
        };
        Ok(vec![one; verify::MAX_SIGNATURES])
    };
    for number in 0..40 {
        is_admitted(&memory, &large(number), &policies, NOW);
        let known = memory.cached();
        assert!(known.weight <= ExaminationCache::MAX_BYTES);
        assert_eq!(known.entries.len(), known.order.len());
        let weights: usize = known.entries.values().map(|entry| entry.weight).sum();
        assert_eq!(known.weight, weights);
    }
    assert_eq!(memory.examinations_performed(), 40);
    is_admitted(&memory, &large(39), &policies, NOW);
    assert_eq!(memory.examinations_performed(), 40);
    is_admitted(&memory, &large(0), &policies, NOW);
    assert_eq!(memory.examinations_performed(), 41);
}

#[test]
fn next_change_of_policy_follows_validity_of_its_trust_roots() {
    let hour = SignedDuration::from_hours(1);
    let (from, until) = (NOW, NOW + hour);
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root["tlogs"][0]["publicKey"]["validFor"] =
        json!({"start": from.to_string(), "end": until.to_string()});
    let policy = keyless(&root.to_string());
    let changes = |now| super::super::changes_after(&policy, now);
    let is_ready = |now| super::super::problems(&policy, now).is_empty();
    assert_eq!(changes(from - hour), Some(from));
    assert!(!is_ready(from - hour) && is_ready(from));
    let end = changes(from).unwrap();
    assert!(is_ready(until) && !is_ready(end));
    assert_eq!(end, until + SignedDuration::from_nanos(1));
    assert_eq!(
        super::super::changes_after(&by_key(&PrivateKey::unwritten(KeyKind::Ed25519)), from),
        None
    );
}

#[test]
fn interrupted_examination_is_unknown_and_not_cached() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let (memory, policies) = (ExaminationCache::default(), [by_key(&key)]);
    let found: Found = Ok(vec![bundle("{}"), signed(&key, &content())]);
    for go_on in [false, false] {
        let examined = memory.examine_while(&content(), &found, &policies, NOW, &|| go_on);
        let why = examined.found.unwrap_err().0;
        assert_eq!(why.code, codes::trust::CANNOT_TELL);
        assert!(why.message.contains("its 2 signatures"), "{why}");
        let class = ClassSignatures::Required;
        let refusal = conclude_examined(
            content(),
            &memory.examine_while(&content(), &found, &policies, NOW, &|| go_on),
            class,
        );
        assert!(refusal.unwrap_err().is_unknown);
    }
    assert_eq!(memory.examinations_performed(), 0);
    assert!(is_admitted(&memory, &found, &policies, NOW));
    assert_eq!(memory.examinations_performed(), 1);
    // Cached results are used even if `go_on` returns `false`.
    let examined = memory.examine_while(&content(), &found, &policies, NOW, &|| false);
    assert_eq!(examined.found.unwrap().len(), 2);
}

#[test]
fn decision_stops_before_the_signature_at_which_its_bundle_is_gone() {
    let key = PrivateKey::unwritten(KeyKind::EcdsaP256);
    let (memory, policies) = (ExaminationCache::default(), [by_key(&key)]);
    // The valid signature is the last one, after nine different invalid signatures.
    let mut all: Vec<_> = (0..9).map(|n| bundle(&format!("{{\"n\": {n}}}"))).collect();
    all.push(signed(&key, &content()));
    let found: Found = Ok(all);
    let asked = Cell::new(0);
    let decide = |until: usize| {
        asked.set(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            asked.get() <= until
        };
        let class = ClassSignatures::Required;
        memory.decide_while(content(), &found, &policies, class, NOW, &go_on)
    };
    let refusal = decide(3).unwrap_err();
    assert!(refusal.is_unknown, "{}", refusal.findings);
    // `go_on` was called before each of four signatures, and before the retry.
    assert_eq!((asked.get(), memory.examinations_performed()), (5, 0));
    assert!(decide(usize::MAX).is_ok());
    assert_eq!(memory.examinations_performed(), 1);
}
