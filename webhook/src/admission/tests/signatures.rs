//! Tests of the caches of signatures: a cached result is not used after the state that it depends
//! on has changed. `bundle_trust` contains the rules and the cache of signature checks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use bundle_core::diagnostic::codes;
use bundle_core::policy::{Policy, ReferencedText};
use bundle_core::reference::{Digest, Reference};
use bundle_trust::keys::{KeyKind, Password, PrivateKey, generate, load_private};
use bundle_trust::{proof_annotation, sign};
use jiff::SignedDuration;

use super::*;

const MANIFEST: &str = r#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":{"mediaType":"application/vnd.oci.empty.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2},"layers":[]}"#;
const ROOT: &str =
    include_str!("../../../../crates/bundle-trust/testdata/keyless/trusted_root.json");
const UNTIMED: &str =
    include_str!("../../../../crates/bundle-trust/testdata/keyless/untimed.bundle.json");
const SUBJECT: &str = include_str!("../../../../crates/bundle-trust/testdata/keyless/subject.txt");

fn key() -> PrivateKey {
    let password = Password::new("fixture".to_owned());
    let files = generate(KeyKind::EcdsaP256, &password).unwrap();
    load_private(&files.private_pem, &password).unwrap()
}

fn content() -> String {
    let digest = Digest::of(MANIFEST.as_bytes());
    format!("registry.example.com/web@{digest}")
}

fn signed(key: &PrivateKey) -> RawSignature {
    let reference: Reference = content().parse().unwrap();
    let payload = sign::signed(&reference.pinned().unwrap(), &BTreeMap::new()).unwrap();
    RawSignature {
        bytes: sign::bundle(key, &payload).unwrap(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }
}

fn policy(authority: &Value) -> Policy {
    let spec = json!({"images": [{"glob": "registry.example.com/**"}], "authorities": [authority]});
    Policy::parse("releases", &spec).unwrap()
}

fn by_key(key: &PrivateKey) -> Policy {
    policy(&json!({"name": "release", "key": {"data": key.public().to_pem()}}))
}

/// Returns a policy with a key in a Secret. `found` is the result of reading the Secret.
fn by_secret(found: ReferencedText) -> Policy {
    policy(&json!({"name": "release", "key": {"secretRef": {"name": "release"}}}))
        .with_secrets(&BTreeMap::from([("release".to_owned(), found)]))
}

fn keyless(root: &Value) -> Policy {
    let found = ReferencedText::Found(root.to_string());
    policy(&json!({"name": "workflow", "keyless": {
        "identities": [{"issuer": "https://token.actions.githubusercontent.com", "subjectRegExp": "https://github.com/example/.*"}],
        "trustRoot": {"configMapRef": {"name": "root"}},
    }}))
    .with_config_maps(&BTreeMap::from([("root".to_owned(), found)]))
}

fn bundle_of(reference: &str, class: &str) -> Value {
    let mut bundle = bundle();
    bundle["spec"]["source"]["image"]["ref"] = reference.into();
    bundle["spec"]["provisionerClassName"] = class.into();
    bundle
}

impl Server {
    fn set_policies(&self, policies: impl IntoIterator<Item = Policy>) {
        let policies = policies.into_iter();
        let named = policies.map(|policy| (policy.name().to_owned(), Arc::new(policy)));
        let mut world = self.fake.state.lock().unwrap();
        world.policies = (Arc::new(named.collect()), world.policies.1 + 1);
    }

    fn set_signatures(&self, signatures: Result<Vec<RawSignature>, Finding>) {
        self.fake.state.lock().unwrap().signatures = signatures;
    }

    /// Returns the first code of the rejection. Returns an empty text for an admitted object.
    async fn code(&self, object: &Value) -> String {
        let (answer, _) = self.write("ana", None, object).await;
        if answer["allowed"] == true {
            return String::new();
        }
        let code = &answer["status"]["details"]["causes"][0]["reason"];
        code.as_str().unwrap().to_owned()
    }

    fn reads(&self) -> usize {
        self.fake.registry_requests.swap(0, Ordering::SeqCst)
    }
}

fn id(code: bundle_core::diagnostic::Code) -> &'static str {
    code.id
}

#[tokio::test]
async fn changed_or_deleted_policy_takes_effect_on_the_next_review() {
    let server = server(Fake::default());
    let (key, other) = (key(), key());
    let object = bundle_of(&content(), "strict");
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(vec![signed(&key)]));
    for _ in 0..3 {
        assert_eq!(server.code(&object).await, "");
    }
    assert_eq!(
        (
            server.reads(),
            server.fake.examinations.examinations_performed()
        ),
        (1, 1)
    );

    server.set_policies([by_key(&other)]);
    assert_eq!(server.code(&object).await, id(codes::trust::NOT_ACCEPTED));
    server.set_policies([]);
    assert_eq!(server.code(&object).await, id(codes::trust::NO_POLICY));
    server.set_policies([by_key(&key)]);
    assert_eq!(server.code(&object).await, "");
}

#[tokio::test]
async fn changed_deleted_or_unreadable_secret_takes_effect_on_the_next_review() {
    let server = server(Fake::default());
    let (key, other) = (key(), key());
    let object = bundle_of(&content(), "plain");
    server.set_signatures(Ok(vec![signed(&key)]));
    let down = Finding::error(codes::cluster::UNREACHABLE, "no answer");
    for (found, expected) in [
        (ReferencedText::Found(key.public().to_pem()), ""),
        (
            ReferencedText::Found(other.public().to_pem()),
            id(codes::trust::NOT_ACCEPTED),
        ),
        (
            ReferencedText::Missing("gone".to_owned()),
            id(codes::trust::POLICY_UNREADABLE),
        ),
        (
            ReferencedText::Unavailable(down),
            id(codes::trust::CANNOT_TELL),
        ),
        (ReferencedText::Found(key.public().to_pem()), ""),
    ] {
        server.set_policies([by_secret(found)]);
        assert_eq!(server.code(&object).await, expected);
    }
}

#[tokio::test]
async fn unknown_and_unsigned_results_are_not_cached() {
    let server = server(Fake::default());
    let key = key();
    let object = bundle_of(&content(), "plain");
    server.set_policies([by_key(&key)]);
    server.set_signatures(Err(Finding::error(
        codes::registry::UNREACHABLE,
        "no answer",
    )));
    for _ in 0..2 {
        let (answer, _) = server.write("ana", None, &object).await;
        assert_eq!(answer["status"]["code"], 503, "{answer}");
        assert_eq!(server.reads(), 1);
    }
    server.set_signatures(Ok(Vec::new()));
    for _ in 0..2 {
        assert_eq!(server.code(&object).await, id(codes::trust::UNSIGNED));
        assert_eq!(server.reads(), 1);
    }
    server.set_signatures(Ok(vec![signed(&key)]));
    assert_eq!(server.code(&object).await, "");
    assert_eq!(server.reads(), 1);
    assert_eq!(server.code(&object).await, "");
    assert_eq!(server.reads(), 0);
}

#[tokio::test]
async fn expired_root_invalidates_cached_results() {
    let server = server(Fake::default());
    let made: Value = serde_json::from_str(UNTIMED).unwrap();
    let logged = &made["verificationMaterial"]["tlogEntries"][0]["integratedTime"];
    let logged = Timestamp::from_second(logged.as_str().unwrap().parse().unwrap()).unwrap();
    let end = logged + SignedDuration::from_hours(1);
    let mut root: Value = serde_json::from_str(ROOT).unwrap();
    root["tlogs"][0]["publicKey"]["validFor"]["end"] = end.to_string().into();
    let object = bundle_of(
        &format!("registry.example.com/web@{}", SUBJECT.trim()),
        "plain",
    );
    server.set_policies([keyless(&root)]);
    server.set_signatures(Ok(vec![RawSignature {
        bytes: UNTIMED.into(),
        artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
        ..RawSignature::default()
    }]));
    let at = |now| server.fake.state.lock().unwrap().now = now;
    at(end);
    assert_eq!(server.code(&object).await, "");
    at(end + SignedDuration::from_secs(1));
    // The image is still cached, and the policies are the same.
    assert_eq!(
        server.code(&object).await,
        id(codes::trust::POLICY_UNREADABLE)
    );
    assert_eq!(server.reads(), 1);
}

#[tokio::test]
async fn hundred_reviews_of_one_digest_cause_one_lookup_and_one_examination() {
    let server = server(Fake::default());
    let key = key();
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(vec![signed(&key)]));
    let object = bundle_of(&content(), "strict");
    let reviews = (0..100).map(|number| {
        let mut object = object.clone();
        object["metadata"]["name"] = format!("web-{number}").into();
        let server = &server;
        async move { server.code(&object).await }
    });
    let codes = futures::future::join_all(reviews).await;
    assert_eq!(codes, vec![String::new(); 100]);
    assert_eq!(
        (
            server.reads(),
            server.fake.examinations.examinations_performed()
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn stalled_lookup_of_one_requester_does_not_delay_another_requester_of_the_image() {
    let server = Arc::new(server(Fake::default()));
    let key = key();
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(vec![signed(&key)]));
    let write = |user: &'static str| {
        let server = Arc::clone(&server);
        let object = bundle_of(&content(), "strict");
        async move { server.write(user, None, &object).await.0 }
    };
    server.fake.stalled.store(true, Ordering::SeqCst);
    let stalled = tokio::spawn(write("ana"));
    while server.reads() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    server.fake.stalled.store(false, Ordering::SeqCst);
    let answer = tokio::time::timeout(Duration::from_secs(1), write("eve"));
    assert_eq!(answer.await.unwrap()["allowed"], true);
    assert!(!stalled.is_finished());
}

#[tokio::test]
async fn recent_proof_replaces_lookup_and_access_review() {
    const PROOF: &str = bundle_api::names::ANNOTATION_PROOF;
    let server = server(Fake::default());
    let (key, other) = (key(), key());
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(vec![signed(&key)]));
    let carrying = |by: &PrivateKey| {
        let mut object = bundle_of(&content(), "strict");
        let proof = proof_annotation::encode(MANIFEST.as_bytes(), &[signed(by)]).unwrap();
        object["metadata"]["annotations"] = json!({ PROOF: proof });
        object
    };
    assert_eq!(server.code(&carrying(&key)).await, "");
    assert_eq!((server.reads(), server.questions()), (0, 1));
    assert_eq!(server.code(&carrying(&other)).await, "");
    assert_eq!((server.reads(), server.questions()), (1, 2));
    // An invalid proof causes a warning, and does not change the verdict.
    let mut damaged = carrying(&key);
    damaged["metadata"]["annotations"][PROOF] = "%%%".into();
    let (answer, _) = server.write("ana", None, &damaged).await;
    assert_eq!(answer["allowed"], true);
    let warnings = answer["warnings"].to_string();
    assert!(warnings.contains("BUNDLE-TRUST-016"), "{warnings}");
    // Signatures of a proof are not stored as signatures of the registry. Without a proof and
    // without a signature in the registry, the object is rejected.
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(Vec::new()));
    assert_eq!(server.code(&carrying(&key)).await, "");
    let bare = bundle_of(&content(), "strict");
    assert_eq!(server.code(&bare).await, id(codes::trust::UNSIGNED));
}

#[tokio::test(start_paused = true)]
async fn verifications_of_one_requester_run_in_sequence_with_a_wait_limit() {
    let server = server(Fake::default());
    let key = key();
    let object = bundle_of(&content(), "plain");
    server.set_policies([by_key(&key)]);
    server.set_signatures(Ok(vec![signed(&key)]));
    let pool = &server.budget.verifications;
    // Reviews without a client address count for this address.
    let client = Some(Ipv4Addr::UNSPECIFIED.into());
    let verifying = |user| pool.take(1, Budget::of_verification(pool, user, client));
    let held = verifying("ana").await.unwrap();
    let (answer, _) = server.write("ana", None, &object).await;
    let message = answer["status"]["message"].as_str().unwrap();
    let expected = "the verification of the signatures did not begin within 2s";
    assert!(
        message.contains("BUNDLE-REVIEW-043") && message.contains(expected),
        "{message}"
    );
    assert_eq!(
        (
            &answer["status"]["code"],
            server.fake.examinations.examinations_performed()
        ),
        (&json!(503), 0)
    );
    // Each requester has its own slot for verification. Images without signatures need no slot.
    let other = server.write("eve", None, &object).await.0;
    assert_eq!((&other["allowed"], pool.used()), (&json!(true), 1));
    let second = verifying("bob").await.unwrap();
    assert_eq!(
        server.write("eve", None, &object).await.0["status"]["code"],
        503
    );
    server.set_policies([]);
    assert_eq!(server.code(&object).await, "");
    server.set_policies([by_key(&key)]);
    drop((held, second));
    assert_eq!((server.code(&object).await.as_str(), pool.used()), ("", 0));
}
