//! AdmissionReviews of `admission.k8s.io/v1`: requests, with strict types only for the fields that
//! are used, and responses.

use std::collections::BTreeMap;

use bundle_api::names::GROUP;
use bundle_core::footprint::Footprint;
use bundle_core::review::Requester;
use bundle_core::review::size::ObjectWeight;
use bundle_core::review::text::Refusal;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::clients::cluster;
use crate::telemetry::spans;

/// Maximum length of the uid of a request, in bytes. API servers send UUIDs with a length of 36
/// bytes.
const UID_BYTES: usize = 128;
/// Maximum length of the user name, in bytes. Stamps, caches and limits contain the user name.
const USER_NAME_BYTES: usize = 1 << 10;
/// Maximum memory of the identity of a requester: about 2,000 groups with names of 40 characters.
/// API servers read identities from tokens, certificates and headers, which are far smaller.
const MAX_USER: Footprint = Footprint(256 << 10);
/// Maximum number of copies of the requester's identity in memory during a review:
///
/// - two copies in the request and in the reviewed write
/// - two copies in the facts for the rules
/// - two copies in each of twelve parallel access reviews: one in the request, and one in its text.
///   The access reviews are for eight ConfigMaps, two classes, a Secret and a ServiceAccount.
///
/// The creation of the stamp needs fewer copies, because no access review runs at that time.
const USER_COPIES: u64 = 2 + 2 + 2 * 12;

/// The request in an AdmissionReview.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request {
    pub(super) uid: String,
    pub(super) kind: GroupVersionKind,
    #[serde(default)]
    pub(super) sub_resource: String,
    /// Name of the object. Empty if the API server generates the name.
    #[serde(default)]
    pub(super) name: String,
    /// Namespace of the object. Empty for cluster-scoped objects.
    #[serde(default)]
    pub(super) namespace: String,
    pub(super) operation: String,
    /// The requester that the API server authenticated.
    #[serde(rename = "userInfo", deserialize_with = "requester")]
    pub(super) requester: Requester,
    #[serde(default)]
    pub(super) object: Value,
    #[serde(default)]
    pub(super) old_object: Value,
    /// True for a dry run: the API server does not store the object.
    #[serde(default)]
    pub(super) dry_run: Option<bool>,
    #[serde(default)]
    pub(super) options: Option<WriteOptions>,
    /// Estimated memory of the old and the new object. `None` for other kinds than the project's
    /// own.
    #[serde(skip)]
    pub(super) weights: Option<(ObjectWeight, ObjectWeight)>,
}

impl Request {
    /// Returns the tracing span of this review.
    pub(super) fn span(&self) -> tracing::Span {
        spans::review(
            &self.kind.kind,
            &self.operation,
            &self.name,
            &self.uid,
            &self.requester.user,
        )
    }
}

/// The options of the write request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteOptions {
    /// The field manager. A client can send any name.
    #[serde(default)]
    pub(super) field_manager: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct GroupVersionKind {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
}

/// Parses the `userInfo` of a request.
fn requester<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Requester, D::Error> {
    #[derive(Deserialize)]
    struct UserInfo {
        #[serde(default)]
        username: String,
        #[serde(default)]
        uid: String,
        #[serde(default)]
        groups: Vec<String>,
        #[serde(default)]
        extra: BTreeMap<String, Vec<String>>,
    }
    let info = UserInfo::deserialize(deserializer)?;
    Ok(Requester {
        user: info.username,
        uid: info.uid,
        groups: info.groups,
        extra: info.extra,
    })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    kind: String,
    request: Option<Request>,
}

/// The parts of a review that are read before the review is parsed.
#[derive(Debug, Deserialize)]
pub(super) struct Envelope {
    /// `None` if the body is not a review with a request.
    pub(super) request: Option<RequestEnvelope>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RequestEnvelope {
    #[serde(default)]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) user_info: UserEnvelope,
    /// Memory that the object needs after parsing.
    #[serde(default)]
    pub(super) object: Footprint,
    #[serde(default)]
    pub(super) old_object: Footprint,
}

/// Name of the requester, and the memory of the other fields of its identity.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UserEnvelope {
    #[serde(default)]
    pub(super) username: String,
    #[serde(default)]
    uid: Footprint,
    #[serde(default)]
    groups: Footprint,
    #[serde(default)]
    extra: Footprint,
}

impl RequestEnvelope {
    /// Returns the memory of the parsed request, with all copies of the identity of its requester.
    /// The short texts of the request are not included.
    pub(super) fn memory(&self) -> Footprint {
        let objects = self.object.plus(self.old_object);
        let identity = self.user_info.memory().0.saturating_mul(USER_COPIES);
        objects.plus(Footprint(identity))
    }
}

impl UserEnvelope {
    /// Returns the memory of one copy of the identity.
    fn memory(&self) -> Footprint {
        let name = Footprint::of_text(self.username.len());
        name.plus(self.uid).plus(self.groups).plus(self.extra)
    }
}

/// Computes the memory that a parsed review needs, without parsing its objects. The error is the
/// message for the client.
pub(super) fn weigh(body: &[u8]) -> Result<Envelope, String> {
    let envelope: Envelope = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
    // The response contains the uid, so the length of the uid is limited.
    let uid = envelope.request.as_ref().map_or("", |request| &request.uid);
    if uid.len() > UID_BYTES {
        return Err(format!(
            "request.uid of the AdmissionReview has more than {UID_BYTES} bytes"
        ));
    }
    let user = envelope.request.as_ref().map(|request| &request.user_info);
    if user.is_some_and(|user| user.username.len() > USER_NAME_BYTES) {
        return Err(format!(
            "the user name in userInfo has more than {USER_NAME_BYTES} bytes"
        ));
    }
    if user.is_some_and(|user| user.memory() > MAX_USER) {
        return Err(format!(
            "the uid, groups and extra fields of userInfo need more than {} bytes when parsed",
            MAX_USER.0
        ));
    }
    Ok(envelope)
}

/// Parses a review. The error is the message for the client.
pub(super) fn read(body: &[u8]) -> Result<Request, String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
    if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
        return Err(format!(
            "the body is {} of {}, not AdmissionReview of admission.k8s.io/v1",
            review.kind, review.api_version
        ));
    }
    let mut request = review.request.ok_or("the AdmissionReview has no request")?;
    // The review of a deletion has only an old object.
    if request.object.is_null() && request.old_object.is_null() {
        return Err("the request of the AdmissionReview has no object".to_owned());
    }
    if is_limited(&request) {
        let weights = (
            cluster::weigh(&request.old_object),
            cluster::weigh(&request.object),
        );
        request.weights = Some(weights);
    }
    Ok(request)
}

/// Returns an allowing response.
pub(super) fn allowed(uid: &str, warnings: &[String], patch: &[Value]) -> Value {
    let mut response = json!({"uid": uid, "allowed": true});
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    if !patch.is_empty() {
        use base64::Engine as _;
        let patch = Value::from(patch.to_vec()).to_string();
        response["patchType"] = "JSONPatch".into();
        response["patch"] = base64::engine::general_purpose::STANDARD
            .encode(patch)
            .into();
    }
    answer(&response)
}

/// Returns a denying response.
pub(super) fn denied(uid: &str, refusal: &Refusal, warnings: &[String]) -> Value {
    let causes: Vec<Value> = refusal
        .causes
        .iter()
        .map(|cause| {
            let mut detail = json!({"reason": cause.code.id, "message": cause.message});
            if let Some(field) = &cause.field {
                detail["field"] = field.as_str().into();
            }
            detail
        })
        .collect();
    let codes: Vec<&str> = refusal.causes.iter().map(|cause| cause.code.id).collect();
    let mut response = json!({
        "uid": uid,
        "allowed": false,
        "status": {
            "status": "Failure",
            "code": refusal.status,
            "reason": refusal.reason,
            "message": refusal.message,
            "details": {"causes": causes},
        },
        "auditAnnotations": {"codes": codes.join(",")},
    });
    if !warnings.is_empty() {
        response["warnings"] = json!(warnings);
    }
    answer(&response)
}

fn answer(response: &Value) -> Value {
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Returns true if the request stores an object of the project's own kinds. The size of these
/// objects is limited.
fn is_limited(request: &Request) -> bool {
    request.kind.group == GROUP
        && request.sub_resource.is_empty()
        && matches!(request.operation.as_str(), "CREATE" | "UPDATE")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighed(user: &Value) -> Result<Envelope, String> {
        let review = json!({"request": {"uid": "1", "userInfo": user, "object": {"a": "b"}}});
        weigh(review.to_string().as_bytes())
    }

    #[test]
    fn groups_of_the_requester_count_and_are_limited() {
        let memory = |envelope: Envelope| envelope.request.unwrap().memory().0;
        let alone = memory(weighed(&json!({"username": "ana"})).unwrap());
        let groups: Vec<String> = (0..2_000).map(|number| format!("team-{number}")).collect();
        let copy = 2_000 * size_of::<String>() as u64;
        let user = json!({"username": "ana", "groups": groups, "extra": {"scopes": ["a", "b"]}});
        let memory_with_groups = memory(weighed(&user).unwrap());
        assert!(memory_with_groups > alone + USER_COPIES * copy);
        assert!(memory_with_groups < 8 << 20);
        let empty = vec![""; 100_000];
        let long = "x".repeat(256 << 10);
        for user in [
            json!({"groups": empty}),
            json!({"extra": {"a": empty}}),
            json!({"uid": long}),
            json!({"username": long}),
            json!({"username": "x".repeat(USER_NAME_BYTES + 1)}),
        ] {
            let why = weighed(&user).unwrap_err();
            assert!(why.contains("userInfo"), "{why}");
        }
        let longest = json!({"username": "x".repeat(USER_NAME_BYTES)});
        assert!(weighed(&longest).is_ok());
    }
}
