//! The router with calls like those of the API server, and lookups that answer from memory.

mod deletions;
mod signatures;
mod waiting;

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode};
use base64::Engine as _;
use bundle_api::names::{ANNOTATION_ADMIT, ANNOTATION_STAMP, LABEL_TEMPLATE_HASH};
use bundle_cluster::review::ReviewLookups;
use bundle_core::diagnostic::Finding;
use bundle_core::names::KubeName;
use bundle_core::policy::RawSignature;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    Answer, Class, ClassFact, Image, Kind, Requester, SealMoment, template_hash,
};
use bundle_core::rights::Question;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::ImageMetadata;
use bundle_trust::proof;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::received::BODY_LIMIT;
use super::*;

const KEY: &[u8] = b"stamp key";
const OWN: &str = "system:serviceaccount:bundle-system:bundle-webhook";
const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// A cluster in which ana has permission to use the classes `plain` and `strict`, with a
/// BundleDeployment.
#[derive(Default)]
struct Fake {
    deployment: Option<Value>,
    questions: AtomicUsize,
    /// Number of requests to the registry.
    looks: AtomicUsize,
    /// True if the registry never responds.
    stalled: AtomicBool,
    /// True if the policies are not loaded yet.
    early: bool,
    world: Mutex<World>,
    examinations: proof::Memory,
}

/// State that tests change between reviews.
struct World {
    policies: (Policies, u64),
    /// The signatures of the registry, or its error.
    signatures: Result<Vec<RawSignature>, Finding>,
    now: Timestamp,
    intact_since: Option<Timestamp>,
    enforced_since: Option<Timestamp>,
}

impl Default for World {
    fn default() -> Self {
        Self {
            policies: (Policies::default(), 1),
            signatures: Ok(Vec::new()),
            now: Timestamp::constant(1_800_000_000, 0),
            intact_since: Some(Timestamp::UNIX_EPOCH),
            enforced_since: Some(Timestamp::UNIX_EPOCH),
        }
    }
}

/// The lookups of an admission, shared with the test.
struct SharedFake(Arc<Fake>);

impl Deref for SharedFake {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.0
    }
}

impl ReviewLookups for SharedFake {
    fn system_namespace(&self) -> &'static str {
        "bundle-system"
    }
    fn state_namespace(&self) -> &'static str {
        "bundle-system-state"
    }
    fn server(&self) -> Option<ServerVersion> {
        ServerVersion::parse("v1.36.0").ok()
    }
    async fn class(&self, name: &KubeName) -> ClassFact {
        let signatures = match name.as_str() {
            "plain" => "IfPolicy",
            "strict" => "Required",
            _ => return ClassFact::Unknown,
        };
        let spec = json!({"signatures": signatures, "provisioner": "core.rukpak.io/plain", "serviceAccount": {"namespace": "bundle-system", "name": "installer"}});
        ClassFact::Known(Box::new(Class::parse(name, &spec).unwrap()))
    }
    async fn may(&self, requester: &Requester, question: &Question) -> Answer {
        self.questions.fetch_add(1, Ordering::SeqCst);
        let Question::Resource {
            verb,
            resource,
            namespace,
            name,
            ..
        } = question
        else {
            return Answer::No;
        };
        let on_class = resource == "provisionerclasses";
        assert_eq!(namespace, if on_class { "bundle-system" } else { "" });
        let is_allowed = if verb == "manage" {
            requester.user == "eve"
        } else {
            let name = name.as_deref().unwrap_or_default();
            ["ana", "eve"].contains(&requester.user.as_str()) && ["plain", "strict"].contains(&name)
        };
        if is_allowed { Answer::Yes } else { Answer::No }
    }
    async fn deployment(&self, _name: &KubeName) -> Result<Option<Value>, Finding> {
        Ok(self.deployment.clone())
    }
    async fn immutable(&self, _name: &KubeName) -> Result<Option<bool>, Finding> {
        Ok(Some(true))
    }
    fn now(&self) -> Timestamp {
        self.world.lock().unwrap().now
    }
    fn examinations(&self) -> &proof::Memory {
        &self.examinations
    }
}

impl Lookups for SharedFake {
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(KEY)
    }
    fn policies(&self) -> Option<(Policies, u64)> {
        (!self.early).then(|| self.world.lock().unwrap().policies.clone())
    }
    async fn own_user(&self) -> Option<String> {
        Some(OWN.to_owned())
    }
    fn intact_since(&self) -> Option<Timestamp> {
        self.world.lock().unwrap().intact_since
    }
    fn enforced_since(&self) -> Option<Timestamp> {
        self.world.lock().unwrap().enforced_since
    }
    async fn look(
        &self,
        image: &Image,
        signatures: bool,
        _memory: Arc<crate::budget::looks::LookMemory>,
    ) -> Result<ImageMetadata, Finding> {
        self.questions.fetch_add(1, Ordering::SeqCst);
        self.looks.fetch_add(1, Ordering::SeqCst);
        if self.stalled.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        // Simulates the time of a response, in which concurrent calls arrive.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let found = self.world.lock().unwrap().signatures.clone()?;
        let digest = || DIGEST.parse().unwrap();
        Ok(ImageMetadata {
            pinned: image
                .reference
                .pinned()
                .unwrap_or_else(|| image.reference.pin(digest())),
            annotations: std::collections::BTreeMap::new(),
            signatures: Ok(if signatures { found } else { Vec::new() }),
        })
    }
}

struct Server {
    router: Router,
    fake: Arc<Fake>,
}

fn server(fake: Fake) -> Server {
    let fake = Arc::new(fake);
    let admission = Admission::new(
        SharedFake(fake.clone()),
        Metrics::default(),
        Duration::from_secs(8),
        Arc::new(Budget::new(crate::budget::DEFAULT_LIMIT)),
    );
    Server {
        router: routes(Arc::new(admission)),
        fake,
    }
}

impl Server {
    async fn post(&self, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
        let body = body.into();
        let mut request = HttpRequest::post(path);
        // As the API server does it.
        if let Some(length) = http_body::Body::size_hint(&body).exact() {
            request = request.header("content-length", length);
        }
        let request = request.body(body).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, body.to_vec())
    }

    async fn ask(&self, path: &str, review: &Value) -> Value {
        let (status, body) = self.post(path, review.to_string()).await;
        assert_eq!(status, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(answer["apiVersion"], "admission.k8s.io/v1");
        assert_eq!(answer["response"]["uid"], review["request"]["uid"]);
        answer["response"].clone()
    }

    /// Simulates the API server: mutates, applies the patch, adds its own fields, and validates.
    /// Returns the response of the validating call, and the object that would be stored.
    async fn write(&self, user: &str, old: Option<&Value>, new: &Value) -> (Value, Value) {
        let mut object = new.clone();
        let mutated = self.ask("/mutate", &review(user, old, &object)).await;
        assert_eq!(mutated["allowed"], true);
        if let Some(patch) = mutated["patch"].as_str() {
            let patch = base64::engine::general_purpose::STANDARD
                .decode(patch)
                .unwrap();
            let patch: json_patch::Patch = serde_json::from_slice(&patch).unwrap();
            json_patch::patch(&mut object, &patch).unwrap();
        }
        let now = json!(self.fake.world.lock().unwrap().now.to_string());
        let metadata = &mut object["metadata"];
        match old {
            None => {
                metadata["generation"] = 1.into();
                metadata["creationTimestamp"] = now;
                if metadata["uid"].is_null() {
                    metadata["uid"] = "u1".into();
                }
            }
            Some(old) if old["spec"] != new["spec"] => {
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                metadata["generation"] = (generation + 1).into();
                metadata["managedFields"] = json!([{"manager": "test", "time": now}]);
            }
            Some(_) => metadata["managedFields"] = json!([{"manager": "test", "time": now}]),
        }
        let answer = self.ask("/validate", &review(user, old, &object)).await;
        (answer, object)
    }

    fn questions(&self) -> usize {
        self.fake.questions.swap(0, Ordering::SeqCst)
    }
}

fn review(user: &str, old: Option<&Value>, new: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "core.rukpak.io", "version": "v1alpha1", "kind": new["kind"]},
            "resource": {"group": "core.rukpak.io", "version": "v1alpha1", "resource": "bundles"},
            "name": new["metadata"]["name"].as_str().unwrap_or_default(),
            "operation": if old.is_some() { "UPDATE" } else { "CREATE" },
            "userInfo": {"username": user, "groups": ["system:authenticated"], "extra": {"scopes": ["x"]}},
            "object": new,
            "oldObject": old,
            "dryRun": false,
            "options": {"kind": "CreateOptions"},
        },
    })
}

fn bundle() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "Bundle",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "source": {"type": "image", "image": {"ref": "registry.example.com/web:1"}}},
    })
}

fn stamp(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"][ANNOTATION_STAMP].as_str()
}

fn requester(object: &Value) -> Option<String> {
    let kind = Kind::ALL
        .into_iter()
        .find(|kind| object["kind"] == kind.as_str())?;
    let name = object["metadata"]["name"].as_str()?;
    let moment = SealMoment {
        now: Timestamp::constant(1_800_000_000, 0).as_millisecond(),
        intact_since: Some(0),
    };
    let vouched = stamping::vouched(KEY, kind, name, object, &moment)?;
    Some(vouched.parts.template.user)
}

#[tokio::test]
async fn bundle_is_stamped_for_its_creator_and_judged_once() {
    let server = server(Fake::default());
    let (answer, stored) = server.write("ana", None, &bundle()).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(requester(&stored).as_deref(), Some("ana"));
    assert!(
        answer["warnings"][0]
            .as_str()
            .unwrap()
            .starts_with("BUNDLE-TRUST-005: ")
    );
    // One access review and one image lookup, although there were two calls.
    assert_eq!(server.questions(), 2);
    // A verdict is used once: the next attempt is judged again.
    server.ask("/validate", &review("ana", None, &stored)).await;
    assert_eq!(server.questions(), 2);
}

#[tokio::test]
async fn validating_call_rejects_with_the_next_step() {
    let server = server(Fake::default());
    let (answer, stored) = server.write("ben", None, &bundle()).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(stamp(&stored), None);
    let status = &answer["status"];
    assert_eq!(
        (&status["code"], &status["reason"]),
        (&json!(403), &json!("Forbidden"))
    );
    let message = status["message"].as_str().unwrap();
    assert!(message.starts_with("BUNDLE-REVIEW-012: spec.provisionerClassName: user \"ben\" has no permission to use provisioner class \"plain\""), "{message}");
    assert_eq!(
        status["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-012"
    );
}

#[tokio::test]
async fn requester_without_permission_causes_no_registry_request() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    assert_eq!(
        server.write("ben", None, &bundle()).await.0["allowed"],
        false
    );
    assert_eq!(server.questions(), 1);
}

#[tokio::test]
async fn rejects_objects_before_the_policies_are_loaded() {
    let server = server(Fake {
        early: true,
        ..Fake::default()
    });
    let (answer, _) = server.write("ana", None, &bundle()).await;
    assert_eq!(
        (&answer["allowed"], &answer["status"]["code"]),
        (&json!(false), &json!(503))
    );
    assert!(
        answer["status"]["message"]
            .as_str()
            .unwrap()
            .contains("the SignaturePolicies are not loaded yet")
    );
}

#[tokio::test]
async fn rejects_long_name_before_the_schema_does() {
    let server = server(Fake::default());
    let mut object = bundle();
    object["metadata"]["name"] = "x".repeat(53).into();
    let answer = server.ask("/mutate", &review("ana", None, &object)).await;
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.contains("metadata.name: Too long: may not be longer than 52"),
        "{message}"
    );
}

#[tokio::test]
async fn rejects_changed_spec_with_the_text_of_rukpak() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    server.questions();
    let mut changed = stored.clone();
    changed["spec"]["source"]["image"]["ref"] = "registry.example.com/web:2".into();
    let (answer, _) = server.write("ana", Some(&stored), &changed).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["reason"], "bundle.spec is immutable");
    assert_eq!(answer["status"]["message"], "bundle.spec is immutable");
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn write_without_change_of_the_spec_keeps_the_stamp_without_lookups() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    server.questions();
    for annotations in [
        json!({}),
        json!({ANNOTATION_STAMP: "forged", "a": "b"}),
        Value::Null,
    ] {
        let mut changed = stored.clone();
        changed["metadata"]["annotations"] = annotations;
        changed["spec"]["source"]["git"] = Value::Null;
        let (answer, object) = server.write("ben", Some(&stored), &changed).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        assert_eq!(requester(&object).as_deref(), Some("ana"));
    }
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn foreign_stamp_is_ignored() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    // Ben creates it again with ana's stamp: the stamp is removed, and the request is rejected.
    let (answer, object) = server.write("ben", None, &stored).await;
    assert_eq!(answer["allowed"], false);
    assert_eq!(stamp(&object), None);
    // The same without the mutating call.
    let other = stored.to_string().replace("\"ana\"", "\"eve\"");
    let other: Value = serde_json::from_str(&other).unwrap();
    let answer = server.ask("/validate", &review("ana", None, &other)).await;
    assert!(
        answer["allowed"] == true
            || answer["status"]["details"]["causes"][0]["reason"] == "BUNDLE-REVIEW-025"
    );
    let mut forged = bundle();
    forged["metadata"]["annotations"] = json!({ANNOTATION_STAMP: "{}"});
    let answer = server.ask("/validate", &review("ana", None, &forged)).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
}

#[tokio::test]
async fn name_of_an_object_with_generate_name_is_part_of_the_stamp() {
    let server = server(Fake::default());
    let mut object = bundle();
    object["metadata"] = json!({"generateName": "web-"});
    let (answer, stored) = server.write("ana", None, &object).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let name = stored["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    assert_eq!(requester(&stored).as_deref(), Some("ana"));
    object["metadata"]["generateName"] = "x".repeat(80).into();
    let (answer, stored) = server.write("ana", None, &object).await;
    assert_eq!(
        (
            &answer["allowed"],
            stored["metadata"]["name"].as_str().unwrap().len()
        ),
        (&json!(true), 52)
    );
}

#[tokio::test]
async fn bundle_of_a_template_inherits_the_stamp_of_its_deployment() {
    let mut deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web", "uid": "u1"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    });
    let (answer, stored) = server(Fake::default())
        .write("ana", None, &deployment)
        .await;
    assert_eq!(answer["allowed"], true, "{answer}");
    deployment = stored;

    let hash = template_hash(&deployment["spec"]["template"]);
    let mut child = bundle();
    child["metadata"] = json!({
        "name": format!("web-{hash}"),
        "labels": {LABEL_TEMPLATE_HASH: hash},
        "ownerReferences": [{"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "name": "web", "uid": "u1", "controller": true}],
    });
    let ours = |deployment: Value| {
        server(Fake {
            deployment: Some(deployment),
            ..Fake::default()
        })
    };
    let there = ours(deployment.clone());
    let (answer, stored) = there.write(OWN, None, &child).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(requester(&stored).as_deref(), Some("ana"));
    assert_eq!(there.questions(), 0);

    // Another user only gets their own permissions.
    let (answer, stored) = there.write("ana", None, &child).await;
    assert_eq!(
        (&answer["allowed"], requester(&stored).as_deref()),
        (&json!(true), Some("ana"))
    );
    assert_eq!(there.write("ben", None, &child).await.0["allowed"], false);

    // The pod inherits nothing for a deployment with another uid, without a stamp, or with another
    // template.
    let mut other_uid = deployment.clone();
    other_uid["metadata"]["uid"] = "u2".into();
    let mut unstamped = deployment.clone();
    unstamped["metadata"]["annotations"] = Value::Null;
    let mut forged = deployment.clone();
    forged["spec"]["template"]["spec"]["source"]["image"]["ref"] =
        "registry.example.com/evil:1".into();
    for deployment in [other_uid, unstamped, forged] {
        assert_eq!(
            ours(deployment).write(OWN, None, &child).await.0["allowed"],
            false
        );
    }
    let mut other_spec = child.clone();
    other_spec["spec"]["source"]["image"]["ref"] = "registry.example.com/evil:1".into();
    assert_eq!(
        ours(deployment).write(OWN, None, &other_spec).await.0["allowed"],
        false
    );
}

#[tokio::test]
async fn object_written_while_admission_was_off_is_admitted_only_by_its_own_annotation() {
    let server = server(Fake::default());
    let mut old = bundle();
    old["metadata"]["uid"] = "u1".into();
    old["metadata"]["generation"] = 1.into();
    let annotated = |value: &str| {
        let mut new = old.clone();
        new["metadata"]["annotations"] = json!({ANNOTATION_ADMIT: value});
        new
    };
    let token = admit_token(KEY, "Bundle", "web", "u1", &old["spec"]);
    for (user, new) in [
        (OWN, annotated(&token)),
        ("eve", annotated("yes")),
        (
            "eve",
            annotated(&admit_token(KEY, "Bundle", "web", "u2", &old["spec"])),
        ),
    ] {
        let (answer, object) = server.write(user, Some(&old), &new).await;
        assert_eq!(
            (&answer["allowed"], stamp(&object)),
            (&json!(true), None),
            "{user}"
        );
    }
    // The permission for the class is not sufficient: nothing proves that the object is theirs, so
    // verb `manage` is required.
    for user in ["ana", "ben"] {
        let (answer, _) = server.write(user, Some(&old), &annotated(&token)).await;
        assert_eq!(answer["status"]["code"], 403, "{user}");
    }
    let (answer, object) = server.write("eve", Some(&old), &annotated(&token)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_eq!(requester(&object).as_deref(), Some("eve"));
    // An annotation that was set before is ignored.
    let there = annotated(&token);
    let mut again = there.clone();
    again["metadata"]["labels"] = json!({"a": "b"});
    let (answer, object) = server.write("eve", Some(&there), &again).await;
    assert_eq!((&answer["allowed"], stamp(&object)), (&json!(true), None));
}

#[tokio::test]
async fn stamp_of_another_time_or_before_a_gap_is_invalid() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let later = |seconds: i64| {
        let then = Timestamp::constant(1_800_000_000 + seconds, 0);
        server.fake.world.lock().unwrap().now = then;
    };
    // The validating call of a later write, without the mutating call.
    later(61);
    let answer = server.ask("/validate", &review("ana", None, &stored)).await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
    let answer = server
        .ask("/validate", &review("ana", None, &bundle()))
        .await;
    assert_eq!(
        answer["status"]["details"]["causes"][0]["reason"],
        "BUNDLE-REVIEW-025"
    );
    // An object without a seal, in a gap: a change of it carries no stamp.
    later(1);
    let mut changed = stored.clone();
    changed["spec"]["source"]["git"] = Value::Null;
    let (_, object) = server.write("ben", Some(&stored), &changed).await;
    assert_eq!(requester(&object).as_deref(), Some("ana"));
    server.fake.world.lock().unwrap().intact_since = Some(Timestamp::constant(1_800_000_000, 1));
    let (answer, object) = server.write("ben", Some(&stored), &changed).await;
    assert_eq!((&answer["allowed"], stamp(&object)), (&json!(true), None));
}

#[tokio::test]
async fn each_part_of_a_deployment_keeps_its_requester_until_it_changes() {
    let server = server(Fake::default());
    let deployment = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "web"},
        "spec": {"provisionerClassName": "plain", "template": {"spec": bundle()["spec"]}},
    });
    let (_, mut stored) = server.write("ana", None, &deployment).await;
    let moment = SealMoment {
        now: Timestamp::constant(1_800_000_000, 0).as_millisecond(),
        intact_since: Some(0),
    };
    let users = |object: &Value| {
        let found = stamping::vouched(KEY, Kind::BundleDeployment, "web", object, &moment);
        let parts = found.unwrap().parts;
        [
            parts.class,
            parts.template,
            parts.config,
            parts.service_account,
        ]
        .map(|who| who.user)
    };
    for (member, value, expected) in [
        ("drift", json!({"mode": "Report"}), ["ana"; 4]),
        ("config", json!({"a": 1}), ["ana", "ana", "eve", "ana"]),
    ] {
        let mut changed = stored.clone();
        changed["spec"][member] = value;
        let (answer, object) = server.write("eve", Some(&stored), &changed).await;
        assert_eq!(answer["allowed"], true, "{answer}");
        assert_eq!(users(&object), expected);
        stored = object;
    }
}

#[tokio::test]
async fn unsealed_stamp_is_renewed_by_writes_of_metadata() {
    let server = server(Fake::default());
    let (_, stored) = server.write("ana", None, &bundle()).await;
    let later = Timestamp::constant(1_800_000_020, 0);
    server.fake.world.lock().unwrap().now = later;
    let mut labelled = stored.clone();
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let (answer, labelled) = server.write("ben", Some(&stored), &labelled).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    assert_ne!(stamp(&labelled), stamp(&stored));
    let moment = SealMoment {
        now: later.as_millisecond(),
        intact_since: Some(0),
    };
    let vouched = stamping::vouched(KEY, Kind::Bundle, "web", &labelled, &moment).unwrap();
    assert_eq!(vouched.parts.template.user, "ana");
}

#[tokio::test(start_paused = true)]
async fn review_ends_at_its_deadline_if_a_dependency_stalls() {
    let server = server(Fake::default());
    server.fake.stalled.store(true, Ordering::SeqCst);
    let (answer, stored) = server.write("ana", None, &bundle()).await;
    assert_eq!((&answer["allowed"], stamp(&stored)), (&json!(false), None));
    assert_eq!(
        (&answer["status"]["code"], &answer["status"]["reason"]),
        (&json!(503), &json!("ServiceUnavailable"))
    );
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("BUNDLE-REVIEW-021: the review did not finish within 8s")
            && message.contains("try again"),
        "{message}"
    );
    // The result is not cached.
    server.fake.stalled.store(false, Ordering::SeqCst);
    assert_eq!(
        server.write("ana", None, &bundle()).await.0["allowed"],
        true
    );
}

#[tokio::test]
async fn admits_only_valid_classes_and_policies() {
    let server = server(Fake::default());
    let object = |kind: &str, spec: Value| json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
    for (object, code) in [
        (
            object(
                "ProvisionerClass",
                json!({"provisioner": "core.rukpak.io/plain"}),
            ),
            None,
        ),
        (
            object("ProvisionerClass", json!({"signatures": "Sometimes"})),
            Some("BUNDLE-REVIEW-011"),
        ),
        (
            object(
                "SignaturePolicy",
                json!({"images": [{"glob": "a.example.com/**"}], "authorities": [{"name": "k", "key": {"secretRef": {"name": "later"}}}]}),
            ),
            None,
        ),
        (
            object(
                "SignaturePolicy",
                json!({"images": [{"glob": "a.example.com/**"}], "authorities": [{"name": "k", "key": {"data": "not PEM"}}]}),
            ),
            Some("BUNDLE-TRUST-003"),
        ),
    ] {
        let (answer, stored) = server.write("admin", None, &object).await;
        assert_eq!(answer["allowed"], code.is_none(), "{answer}");
        assert_eq!(
            answer["status"]["details"]["causes"][0]["reason"].as_str(),
            code
        );
        assert_eq!(stamp(&stored), None);
        // A stored invalid object can still be labelled and deleted.
        let mut labelled = object.clone();
        labelled["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(
            server.write("admin", Some(&object), &labelled).await.0["allowed"],
            true
        );
    }
}

#[tokio::test]
async fn malformed_reviews_get_an_admission_response() {
    let server = server(Fake::default());
    let mut no_object = review("ana", None, &bundle());
    no_object["request"]["object"] = Value::Null;
    let mut old_version = review("ana", None, &bundle());
    old_version["apiVersion"] = "admission.k8s.io/v1beta1".into();
    for (body, text) in [
        (String::new(), "not an AdmissionReview: EOF"),
        ("not json".to_owned(), "not an AdmissionReview"),
        ("[]".to_owned(), "not an AdmissionReview"),
        (
            "{\"apiVersion\":\"v1\",\"kind\":\"Pod\"}".to_owned(),
            "a Pod of v1, and not",
        ),
        (
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string(),
            "has no request",
        ),
        (no_object.to_string(), "has no object"),
        (old_version.to_string(), "v1beta1"),
        (
            format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000)),
            "not an AdmissionReview",
        ),
    ] {
        for path in ["/validate", "/mutate"] {
            let (status, answer) = server.post(path, body.clone()).await;
            assert_eq!(status, StatusCode::OK);
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            assert_eq!(answer["response"]["allowed"], false);
            let message = answer["response"]["status"]["message"].as_str().unwrap();
            assert!(
                message.starts_with("BUNDLE-REVIEW-022: ") && message.contains(text),
                "{message}"
            );
        }
    }
}

#[tokio::test]
async fn rejects_reviews_above_the_size_limit() {
    let server = server(Fake::default());
    let mut large = bundle();
    large["metadata"]["managedFields"] = json!("x".repeat(5 << 20));
    assert_eq!(server.write("ana", None, &large).await.0["allowed"], true);
    let (status, body) = server.post("/validate", vec![b'['; BODY_LIMIT + 1]).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(
        String::from_utf8(body).unwrap(),
        "the review is larger than 8388608 bytes, and nothing larger is read\n"
    );
}

#[tokio::test]
async fn admits_subresources_and_other_groups_without_review() {
    let server = server(Fake::default());
    let mut status = review("ben", Some(&bundle()), &bundle());
    status["request"]["subResource"] = "status".into();
    let mut pod = review(
        "ben",
        None,
        &json!({"kind": "Pod", "metadata": {"name": "x"}}),
    );
    pod["request"]["kind"] = json!({"group": "", "version": "v1", "kind": "Pod"});
    for review in [status, pod] {
        for path in ["/validate", "/mutate"] {
            let answer = server.ask(path, &review).await;
            assert_eq!(answer["allowed"], true);
            assert!(answer["patch"].is_null());
        }
    }
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn rejects_objects_with_many_small_values_before_they_are_parsed() {
    let server = server(Fake::default());
    for tiny in ["[]", "{\"\":0}", "[[0]]"] {
        let mut large = bundle();
        large["spec"]["tiny"] = "@".into();
        let list = format!(
            "[{}{tiny}]",
            format!("{tiny},").repeat((7 << 20) / (tiny.len() + 1))
        );
        let body = review("ana", None, &large)
            .to_string()
            .replace("\"@\"", &list);
        let (status, answer) = server.post("/validate", body).await;
        assert_eq!(status, StatusCode::OK);
        let answer: Value = serde_json::from_slice(&answer).unwrap();
        let message = answer["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains("BUNDLE-REVIEW-042"), "{message}");
        let uid = "705ab4f5-6393-11e8-b7cc-42010a800002";
        assert_eq!(answer["response"]["uid"], uid);
    }
}

#[tokio::test]
async fn reviews_update_with_two_objects_of_three_mebibytes() {
    let server = server(Fake::default());
    let mut large = bundle();
    let fields: Vec<Value> = (0..2_700)
        .map(|number| json!({"name": format!("f:{number}"), "text": "x".repeat(1_100)}))
        .collect();
    large["metadata"]["managedFields"] = fields.into();
    assert!(large.to_string().len() > (14 << 20) / 5);
    let (response, _) = server.write("ana", Some(&large), &large).await;
    assert_eq!(response["allowed"], true, "{response}");
}
