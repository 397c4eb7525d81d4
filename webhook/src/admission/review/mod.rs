//! AdmissionReviews of `admission.k8s.io/v1`: the requests and the responses. Only the fields of a
//! request that the webhook uses have strict types.

mod envelope;
mod prefix;
mod response;

use std::collections::BTreeMap;
use std::net::IpAddr;

use bundle_api::names::GROUP;
use bundle_core::cancellation::Cancellation;
use bundle_core::footprint::Footprint;
use bundle_core::review::Requester;
use bundle_core::review::size::ObjectWeight;
use bundle_core::text::bounded;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use self::envelope::TEXT_BYTES;
pub(super) use self::envelope::{Envelope, RequestEnvelope, weigh};
pub(super) use self::prefix::{PrefixRequester, requester_in_prefix};
pub(super) use self::response::{allowed, denied};
use crate::clients::cluster;
use crate::server::deadline::ReviewDeadline;
use crate::telemetry::spans;

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
}
