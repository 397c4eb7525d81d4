//! Tests of the router. The calls are like the calls of an API server, and lookups return results
//! from memory.

mod bounds;
mod config_maps;
mod deadlines;
mod definitions;
mod deletions;
mod messages;
mod signatures;
mod stamps;
mod waiting;

use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Body;
use axum::http::{Request as HttpRequest, StatusCode};
use base64::Engine as _;
use bundle_api::names::{ANNOTATION_ADMIT, ANNOTATION_STAMP, LABEL_TEMPLATE_HASH};
use bundle_cluster::review::ReviewLookups;
use bundle_core::cancellation::Cancellation;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_core::policy::RawSignature;
use bundle_core::review::stamp::admit_token;
use bundle_core::review::{
    AccessReviewResult, Class, ClassFact, Image, Kind, Requester, SealCheckContext, template_hash,
};
use bundle_core::rights::AccessReview;
use bundle_core::version::ServerVersion;
use bundle_oci::registry::ImageMetadata;
use bundle_trust::proof;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::stamps::stamping;
use super::*;
use crate::reconcile::RecordedOwner;

const KEY: &[u8] = b"stamp key";
const OWN: &str = "system:serviceaccount:bundle-system:bundle-webhook";
const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

/// A cluster with a BundleDeployment, in which ana has permission to use the classes `plain` and
/// `strict`.
#[derive(Default)]
struct Fake {
    deployment: Option<Value>,
    /// The result of reads of the BundleDeployment, if they fail.
    deployment_error: Option<Finding>,
    /// Bundles that reference each ConfigMap. `None` if the Bundles are unknown.
    bundles: Option<Vec<String>>,
    /// The BundleDeployment whose inventory records a definition with uid `crd`. `None` if the
    /// inventories cannot be read.
    owner: Option<RecordedOwner>,
    access_reviews: AtomicUsize,
    /// Number of requests to the registry.
    registry_requests: AtomicUsize,
    /// True if the registry never responds.
    stalled: AtomicBool,
    /// Has one more reference for each BundleDeployment in memory.
    held_deployments: Arc<()>,
    /// True if the policies are not loaded yet.
    before_policies: bool,
    state: Mutex<FakeState>,
    examinations: proof::ExaminationCache,
}

/// State that tests change between reviews.
struct FakeState {
    policies: (Policies, u64),
    /// The signatures in the registry, or the error of the registry.
    signatures: Result<Vec<RawSignature>, Finding>,
    now: Timestamp,
    intact_since: Option<Timestamp>,
    enforced_since: Option<Timestamp>,
}

impl Default for FakeState {
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

/// A BundleDeployment that is counted until it is dropped.
struct HeldFake {
    object: Value,
    _held: Arc<()>,
}

impl Deref for HeldFake {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.object
    }
}

/// The lookups of an [`Admission`]. The test uses the same [`Fake`], and can change its state.
struct SharedFake(Arc<Fake>);

impl Deref for SharedFake {
    type Target = Fake;

    fn deref(&self) -> &Fake {
        &self.0
    }
}

impl SharedFake {
    /// Counts a lookup. No BundleDeployment may be in memory during a lookup, because lookups can
    /// stall, and users choose the size of a BundleDeployment.
    fn count_lookup(&self) {
        assert_eq!(Arc::strong_count(&self.held_deployments), 1);
        self.access_reviews.fetch_add(1, Ordering::SeqCst);
    }
}

impl ReviewLookups for SharedFake {
    type HeldDeployment = HeldFake;

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
    async fn has_permission(
        &self,
        requester: &Requester,
        question: &AccessReview,
    ) -> AccessReviewResult {
        self.count_lookup();
        let AccessReview::Resource {
            verb,
            resource,
            namespace,
            name,
            ..
        } = question
        else {
            return AccessReviewResult::Denied;
        };
        let on_class = resource == "provisionerclasses";
        assert_eq!(namespace, if on_class { "bundle-system" } else { "" });
        let is_allowed = if verb == "manage" {
            requester.user == "eve"
        } else {
            let name = name.as_deref().unwrap_or_default();
            ["ana", "eve"].contains(&requester.user.as_str()) && ["plain", "strict"].contains(&name)
        };
        if is_allowed {
            AccessReviewResult::Allowed
        } else {
            AccessReviewResult::Denied
        }
    }
    async fn deployment(
        &self,
        _requester: &Requester,
        _name: &KubeName,
    ) -> Result<Option<HeldFake>, Finding> {
        let found = self.deployment_error.clone();
        let found = found.map_or(Ok(self.deployment.clone()), Err)?;
        Ok(found.map(|object| HeldFake {
            object,
            _held: Arc::clone(&self.held_deployments),
        }))
    }
    async fn immutable(
        &self,
        _requester: &Requester,
        _name: &KubeName,
    ) -> Result<Option<bool>, Finding> {
        Ok(Some(true))
    }
    fn now(&self) -> Timestamp {
        self.state.lock().unwrap().now
    }
    fn examinations(&self) -> &proof::ExaminationCache {
        &self.examinations
    }
}

impl Lookups for SharedFake {
    fn with_stamp_key<T>(&self, with: impl FnOnce(&[u8]) -> T) -> T {
        with(KEY)
    }
    fn policies(&self) -> Option<(Policies, u64)> {
        (!self.before_policies).then(|| self.state.lock().unwrap().policies.clone())
    }
    async fn own_user(&self) -> Option<String> {
        Some(OWN.to_owned())
    }
    fn intact_since(&self) -> Option<Timestamp> {
        self.state.lock().unwrap().intact_since
    }
    fn enforced_since(&self) -> Option<Timestamp> {
        self.state.lock().unwrap().enforced_since
    }
    async fn bundles_of_config_map(
        &self,
        _requester: &Requester,
        _name: &str,
    ) -> Result<Vec<String>, Finding> {
        let unknown = || Finding::error(codes::cluster::UNREACHABLE, "no response");
        self.bundles.clone().ok_or_else(unknown)
    }
    async fn recorded_owner(
        &self,
        _requester: &Requester,
        object: (&str, &str),
        _likely: Option<&str>,
    ) -> Result<Option<RecordedOwner>, Finding> {
        self.count_lookup();
        let unknown = || Finding::error(codes::cluster::UNREACHABLE, "no response");
        let owner = self.owner.clone().ok_or_else(unknown)?;
        let recorded = (
            "CustomResourceDefinition.apiextensions.k8s.io/jugs.example.com",
            "crd",
        );
        Ok(Some(owner).filter(|_| object == recorded))
    }
    async fn read_image(
        &self,
        image: &Image,
        signatures: bool,
        _memory: Arc<crate::budget::lookups::LookupMemory>,
    ) -> Result<ImageMetadata, Finding> {
        self.count_lookup();
        self.registry_requests.fetch_add(1, Ordering::SeqCst);
        if self.stalled.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        // Simulates the time until the response, so that concurrent calls arrive before the
        // response.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        let found = self.state.lock().unwrap().signatures.clone()?;
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
    budget: Arc<Budget>,
}

fn server(fake: Fake) -> Server {
    let fake = Arc::new(fake);
    let budget = Arc::new(Budget::default());
    let admission = Admission::new(
        SharedFake(fake.clone()),
        Metrics::default(),
        Duration::from_secs(8),
        budget.clone(),
    );
    Server {
        router: routes(Arc::new(admission)),
        fake,
        budget,
    }
}

impl Server {
    async fn respond(&self, path: &str, body: impl Into<Body>) -> Response {
        let body = body.into();
        let mut request = HttpRequest::post(path);
        // The API server also sends the header Content-Length.
        if let Some(length) = http_body::Body::size_hint(&body).exact() {
            request = request.header("content-length", length);
        }
        let request = request.body(body).unwrap();
        self.router.clone().oneshot(request).await.unwrap()
    }

    async fn post(&self, path: &str, body: impl Into<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.respond(path, body).await;
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
        let now = json!(self.fake.state.lock().unwrap().now.to_string());
        let metadata = &mut object["metadata"];
        match old {
            None => {
                metadata["generation"] = 1.into();
                metadata["creationTimestamp"] = now;
                if metadata["uid"].is_null() {
                    metadata["uid"] = "u1".into();
                }
            }
            Some(old) => {
                if old["spec"] != new["spec"] {
                    let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                    metadata["generation"] = (generation + 1).into();
                }
                let mut entries = metadata["managedFields"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                entries.retain(|entry| entry["manager"] != "test");
                entries.push(json!({"manager": "test", "time": now}));
                metadata["managedFields"] = entries.into();
            }
        }
        let answer = self.ask("/validate", &review(user, old, &object)).await;
        (answer, object)
    }

    fn questions(&self) -> usize {
        self.fake.access_reviews.swap(0, Ordering::SeqCst)
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
    let moment = SealCheckContext {
        now: Timestamp::constant(1_800_000_000, 0).as_millisecond(),
        intact_since: Some(0),
    };
    let vouched = stamping::confirmed_facts(KEY, kind, name, object, &moment)?;
    Some(vouched.parts.template.user.clone())
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
    // Two calls caused only one access review and one image lookup.
    assert_eq!(server.questions(), 2);
    // A cached verdict is used only once, so the next attempt gets a new review.
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
        before_policies: true,
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
    for length in [53, 600, 64 << 10] {
        let mut object = bundle();
        object["metadata"]["name"] = "x".repeat(length).into();
        let body = review("ana", None, &object);
        let answer = server.ask("/mutate", &body).await;
        let message = answer["status"]["message"].as_str().unwrap();
        assert!(
            message.contains("metadata.name: Too long: may not be longer than 52"),
            "{message}"
        );
        // The review makes no copies of a long name.
        let read = review::read(body.to_string().as_bytes(), &Cancellation::default());
        let (request, _) = read.unwrap();
        assert_eq!(request.name.len(), length.min(512));
    }
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
