//! AdmissionReviews of `admission.k8s.io/v1`: the requests and the responses. Only the fields of a
//! request that the webhook uses have strict types.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use bundle_api::names::GROUP;
use bundle_core::cancellation::Cancellation;
use bundle_core::footprint::Footprint;
use bundle_core::review::Requester;
use bundle_core::review::size::ObjectWeight;
use bundle_core::review::text::Refusal;
use bundle_core::text::bounded;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::clients::cluster;
use crate::server::deadline::ReviewDeadline;
use crate::telemetry::spans;

/// Maximum length of the uid of a request, in bytes. API servers send UUIDs with a length of 36
/// bytes.
const UID_BYTES: usize = 128;
/// Maximum length of each other short text of a request, in bytes: namespaces, kinds, operations
/// and field managers. Names of namespaces and API groups have at most 253 bytes. A longer name of
/// an object is shortened to this length, because API servers validate this name after the mutating
/// call.
const TEXT_BYTES: usize = 512;
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
    /// Name of the object, at most [`TEXT_BYTES`] bytes. Empty if the API server generates the
    /// name. A shortened name ends with ` …`, so it is invalid for every reviewed kind.
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
    /// Estimated memory of the old and the new object. `None` for kinds of other projects.
    #[serde(skip)]
    pub(super) weights: Option<(ObjectWeight, ObjectWeight)>,
    /// Address of the client that sent the review. `None` until the review is received.
    #[serde(skip)]
    pub(super) client: Option<IpAddr>,
    /// Memory that is reserved for the parsed review, in bytes.
    #[serde(skip)]
    pub(super) reserved: u64,
    /// Deadline of the review.
    #[serde(skip)]
    pub(super) deadline: ReviewDeadline,
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
    #[serde(default, deserialize_with = "uid_text")]
    pub(super) uid: String,
    #[serde(default)]
    pub(super) user_info: UserEnvelope,
    #[serde(default)]
    kind: Option<TypeEnvelope>,
    #[serde(default)]
    resource: Option<TypeEnvelope>,
    #[serde(default)]
    request_kind: Option<TypeEnvelope>,
    #[serde(default)]
    request_resource: Option<TypeEnvelope>,
    #[serde(default)]
    sub_resource: Footprint,
    #[serde(default)]
    request_sub_resource: Footprint,
    #[serde(default)]
    namespace: Footprint,
    #[serde(default)]
    operation: Footprint,
    #[serde(default)]
    options: Option<OptionsEnvelope>,
    /// Memory that the object needs after parsing.
    #[serde(default)]
    pub(super) object: Footprint,
    #[serde(default)]
    pub(super) old_object: Footprint,
}

/// Memory of the texts of a kind or resource.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TypeEnvelope {
    group: Footprint,
    version: Footprint,
    kind: Footprint,
    resource: Footprint,
}

/// Memory of the texts of [`WriteOptions`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OptionsEnvelope {
    #[serde(default)]
    field_manager: Footprint,
}

/// Name of the requester, and the memory of the other fields of its identity.
#[derive(Debug, Default, Deserialize)]
pub(super) struct UserEnvelope {
    #[serde(default, deserialize_with = "user_name_text")]
    pub(super) username: String,
    #[serde(default)]
    uid: Footprint,
    #[serde(default)]
    groups: Footprint,
    #[serde(default)]
    extra: Footprint,
}

/// Parses the uid of a request.
fn uid_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_str(BoundedText { limit: UID_BYTES })
}

/// Parses a user name.
fn user_name_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let limit = USER_NAME_BYTES;
    deserializer.deserialize_str(BoundedText { limit })
}

/// Copies a text. If the text has more than `limit` bytes, copies only its start, which also has
/// more than `limit` bytes. Therefore the memory of a text is limited before its length is checked.
struct BoundedText {
    limit: usize,
}

impl Visitor<'_> for BoundedText {
    type Value = String;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        let mut ends = self.limit + 1..text.len();
        let end = ends.find(|end| text.is_char_boundary(*end));
        Ok(text[..end.unwrap_or(text.len())].to_owned())
    }
}

impl RequestEnvelope {
    /// Returns the memory of the parsed request, with all copies of the identity of its requester.
    /// The short texts of the request are not included.
    pub(super) fn memory(&self) -> Footprint {
        let objects = self.object.plus(self.old_object);
        let identity = self.user_info.memory().0.saturating_mul(USER_COPIES);
        objects.plus(Footprint(identity))
    }

    /// Returns the first field, except the name, that contains a text of more than [`TEXT_BYTES`]
    /// bytes.
    fn long_text(&self) -> Option<&'static str> {
        let longest = |named: Option<&TypeEnvelope>| {
            named.map_or(Footprint::default(), TypeEnvelope::longest)
        };
        let options = self.options.as_ref();
        let manager = options.map_or(Footprint::default(), |options| options.field_manager);
        let texts = [
            ("kind", longest(self.kind.as_ref())),
            ("resource", longest(self.resource.as_ref())),
            ("requestKind", longest(self.request_kind.as_ref())),
            ("requestResource", longest(self.request_resource.as_ref())),
            ("subResource", self.sub_resource),
            ("requestSubResource", self.request_sub_resource),
            ("namespace", self.namespace),
            ("operation", self.operation),
            ("options.fieldManager", manager),
        ];
        let mut texts = texts.into_iter();
        let (field, _) = texts.find(|(_, text)| *text > Footprint::of_text(TEXT_BYTES))?;
        Some(field)
    }
}

impl TypeEnvelope {
    /// Returns the memory of the longest text.
    fn longest(&self) -> Footprint {
        let texts = [self.group, self.version, self.kind, self.resource];
        texts.into_iter().max().unwrap_or_default()
    }
}

impl UserEnvelope {
    /// Returns the memory of one copy of the identity.
    fn memory(&self) -> Footprint {
        let name = Footprint::of_text(self.username.len());
        name.plus(self.uid).plus(self.groups).plus(self.extra)
    }
}

/// Parses only the parts of a review from which the memory of the parsed review is computed. The
/// error is the message for the client.
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
    let long = envelope
        .request
        .as_ref()
        .and_then(RequestEnvelope::long_text);
    if let Some(field) = long {
        return Err(format!(
            "request.{field} of the AdmissionReview has a text of more than {TEXT_BYTES} bytes"
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

/// Parses a review without the values that [`remove_status`] removes, and shortens the name of the
/// object. Returns the request, and the memory of the removed values. The error is the message for
/// the client. The function also fails if `cancellation` is set while it computes the weights.
pub(super) fn read(
    body: &[u8],
    cancellation: &Cancellation,
) -> Result<(Request, Footprint), String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
    if review.kind != "AdmissionReview" || review.api_version != "admission.k8s.io/v1" {
        return Err(format!(
            "the body has kind {} and apiVersion {}, not AdmissionReview and admission.k8s.io/v1",
            review.kind, review.api_version
        ));
    }
    let mut request = review.request.ok_or("the AdmissionReview has no request")?;
    request.name = bounded(&request.name, TEXT_BYTES);
    // The review of a deletion has only an old object.
    if request.object.is_null() && request.old_object.is_null() {
        return Err("the request of the AdmissionReview has no object".to_owned());
    }
    if is_limited(&request) {
        let weigh = |object| cluster::weigh(object, cancellation);
        let weights = weigh(&request.old_object).zip(weigh(&request.object));
        request.weights = Some(weights.ok_or("the review was cancelled")?);
    }
    let removed = remove_status(&mut request);
    Ok((request, removed))
}

/// Removes the status of the project's own objects, except the seal. Reviews use no other field of
/// the status, and the size of the status is not limited. Returns the memory of the removed values.
fn remove_status(request: &mut Request) -> Footprint {
    let mut removed = Footprint::default();
    if request.kind.group != GROUP || !request.sub_resource.is_empty() {
        return removed;
    }
    for object in [&mut request.object, &mut request.old_object] {
        let Some(status) = object.get_mut("status") else {
            continue;
        };
        let whole = Footprint::of(status);
        let seal = status.pointer_mut("/admission/seal").map(Value::take);
        *status = seal.map_or(Value::Null, |seal| json!({"admission": {"seal": seal}}));
        let kept = Footprint::of(status);
        removed = removed.plus(Footprint(whole.0.saturating_sub(kept.0)));
    }
    removed
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
    fn short_texts_of_a_request_are_limited() {
        for (field, pointer) in [
            ("kind", "/kind/group"),
            ("kind", "/kind/version"),
            ("kind", "/kind/kind"),
            ("resource", "/resource/resource"),
            ("requestKind", "/requestKind/kind"),
            ("requestResource", "/requestResource/resource"),
            ("subResource", "/subResource"),
            ("requestSubResource", "/requestSubResource"),
            ("namespace", "/namespace"),
            ("operation", "/operation"),
            ("options.fieldManager", "/options/fieldManager"),
        ] {
            for (bytes, is_limited) in [(TEXT_BYTES, false), (TEXT_BYTES + 1, true)] {
                let mut request = json!({
                    "uid": "1",
                    "kind": {"group": "", "version": "", "kind": ""},
                    "resource": {"resource": ""},
                    "requestKind": {"kind": ""},
                    "requestResource": {"resource": ""},
                    "subResource": "",
                    "requestSubResource": "",
                    "name": "",
                    "namespace": "",
                    "operation": "",
                    "options": {"fieldManager": ""},
                    "object": {"a": "b"},
                });
                *request.pointer_mut(pointer).unwrap() = "x".repeat(bytes).into();
                let review = json!({"request": request}).to_string();
                let error = weigh(review.as_bytes()).err();
                let expected = format!(
                    "request.{field} of the AdmissionReview has a text of more than 512 bytes"
                );
                assert_eq!(error, is_limited.then_some(expected), "{pointer}");
            }
        }
        let absent = json!({"request": {"uid": "1", "requestKind": null, "options": null}});
        assert!(weigh(absent.to_string().as_bytes()).is_ok());
    }

    #[test]
    fn only_the_start_of_a_long_uid_and_user_name_is_copied() {
        for (bytes, is_long) in [(100, false), (4 << 20, true)] {
            let text = "é".repeat(bytes / 2);
            let review = json!({"request": {"uid": text, "userInfo": {"username": text}}});
            let envelope: Envelope = serde_json::from_str(&review.to_string()).unwrap();
            let request = envelope.request.unwrap();
            for (copy, limit) in [
                (&request.uid, UID_BYTES),
                (&request.user_info.username, USER_NAME_BYTES),
            ] {
                assert_eq!(copy.len() > limit, is_long);
                assert!(text.starts_with(copy.as_str()) && copy.capacity() <= limit + 4);
            }
            let error = weigh(review.to_string().as_bytes()).err();
            assert_eq!(error.is_some(), is_long, "{error:?}");
        }
    }

    #[test]
    fn status_of_own_objects_is_removed_except_the_seal() {
        let status = json!({"admission": {"seal": "s", "other": 1}, "lists": [[], [], []]});
        let old = json!({"kind": "Bundle", "spec": {}, "status": status});
        let new = json!({"kind": "Bundle", "spec": {}, "status": "text"});
        let read = |group: &str, operation: &str| {
            let review = json!({
                "apiVersion": "admission.k8s.io/v1",
                "kind": "AdmissionReview",
                "request": {
                    "uid": "1",
                    "kind": {"group": group, "version": "v1alpha1", "kind": "Bundle"},
                    "operation": operation,
                    "userInfo": {},
                    "object": new,
                    "oldObject": old,
                },
            });
            read(review.to_string().as_bytes(), &Cancellation::default()).unwrap()
        };
        let kept = json!({"admission": {"seal": "s"}});
        for operation in ["UPDATE", "DELETE"] {
            let (request, removed) = read(GROUP, operation);
            assert_eq!(request.old_object["status"], kept);
            assert_eq!(request.object["status"], Value::Null);
            let whole = Footprint::of(&status).plus(Footprint::of(&new["status"]));
            assert_eq!(removed.plus(Footprint::of(&kept)), whole);
        }
        let (request, removed) = read("apps", "UPDATE");
        assert_eq!((request.old_object, removed), (old.clone(), Footprint(0)));
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
