//! Objects of the project's own kinds that are too large to read. These objects are not reconciled,
//! and only reported with conditions and an Event. Admission rejects writes that would make an
//! object too large. Therefore there are two possible causes. The object was written while the
//! webhook registrations were missing, or a write of the status made the object too large.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bundle_api::names::{self, condition, reason};
use bundle_cluster::ObjectUrl;
use bundle_core::diagnostic::codes;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::discovery::ApiResource;
use kube::core::response::Status;
use kube::runtime::controller::Action;
use serde_json::{Value, json};

use crate::reconcile::api::object;
use crate::reconcile::status::condition_set;
use crate::reconcile::status::writer::EventRecorder;

/// Maximum number of reported objects. When this number is reached, all uids are removed. After
/// that, the objects are reported again.
const MAX_REPORTED: usize = 10_000;
/// Media type of responses that contain only metadata.
const METADATA_MIME: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
/// Message of the conditions and of the Event.
const MESSAGE: &str = "the object is too large to read, so it is neither reconciled nor removed: delete finalizers, owner references, labels, annotations, entries of managedFields or values of its spec, until it is within the limits of an object";

/// Uids of the objects that were already reported. Without this set, each report would start a
/// reconcile that writes the next report.
#[derive(Debug, Default)]
pub(in crate::reconcile) struct ReportedObjects(Mutex<HashSet<String>>);

/// Returns true if this error means that an object is too large to read.
pub(in crate::reconcile) fn is_too_large(error: &kube::Error) -> bool {
    let code = http::StatusCode::PAYLOAD_TOO_LARGE.as_u16();
    matches!(error, kube::Error::Api(status) if status.code == code)
}

impl ReportedObjects {
    /// Adds the uid of an object. Returns true if the object was not reported before.
    fn add(&self, uid: &str) -> bool {
        let mut uids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if uids.len() >= MAX_REPORTED {
            uids.clear();
        }
        uids.insert(uid.to_owned())
    }

    /// Removes the uid of an object that was read successfully.
    pub(in crate::reconcile) fn remove(&self, object: &DynamicObject) {
        if let Some(uid) = &object.metadata.uid {
            let mut uids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            uids.remove(uid);
        }
    }

    /// Writes conditions and an Event about an object that is too large to read. Does nothing if
    /// the object was already reported.
    pub(in crate::reconcile) async fn report(
        &self,
        own: &Client,
        resource: &ApiResource,
        events: &EventRecorder,
        object: &DynamicObject,
    ) -> Action {
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if self.add(uid) {
            events
                .warn(object, codes::review::TOO_LARGE_TO_READ, MESSAGE)
                .await;
            // If an object has the maximum size, no condition can be added to it. Only the Event
            // reports the object.
            if let Err(error) = set_conditions(own, resource, object).await {
                let name = object.metadata.name.as_deref().unwrap_or_default();
                tracing::warn!(
                    kind = resource.kind,
                    name,
                    error = crate::chain(&error),
                    "cannot write the conditions of an object that is too large to read"
                );
            }
        }
        Action::await_change()
    }
}

/// Applies only the field `status.conditions`. The response contains only metadata, because the
/// whole object is too large to read.
async fn set_conditions(
    own: &Client,
    resource: &ApiResource,
    object: &DynamicObject,
) -> Result<(), kube::Error> {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let url = ObjectUrl::parse(resource, None, name).map_err(kube::Error::BuildRequest)?;
    let patch = patch(resource, object, &condition_set::now().to_string());
    let parameters = PatchParams::apply(names::UNREADABLE_MANAGER).force();
    let request = url
        .requests()
        .patch_subresource("status", url.name(), &parameters, &Patch::Apply(&patch))
        .map_err(kube::Error::BuildRequest)?;
    let mut request = request.map(Body::from);
    let accept = http::HeaderValue::from_static(METADATA_MIME);
    request.headers_mut().insert(http::header::ACCEPT, accept);
    let answer = own.send(request).await?;
    let code = answer.status();
    let body = answer.into_body().collect_bytes().await?;
    if code.is_success() {
        return Ok(());
    }
    let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
        code: code.as_u16(),
        ..Status::default()
    });
    match kube::Error::Api(Box::new(status)) {
        // The object was deleted, or deleted and created again with another uid.
        error if object::is_not_found(&error) || object::is_conflict(&error) => Ok(()),
        error => Err(error),
    }
}

fn patch(resource: &ApiResource, object: &DynamicObject, now: &str) -> Value {
    let conditions: &[&str] = match resource.kind.as_str() {
        crate::reconcile::DEPLOYMENT => &[condition::READY, condition::PROGRESSING],
        "BundleApproval" => &[condition::ACCEPTED],
        _ => &[condition::READY],
    };
    let conditions: Vec<Value> = conditions
        .iter()
        .map(|kind| {
            json!({
                "type": kind,
                "status": "False",
                "reason": reason::TOO_LARGE_TO_READ,
                "message": format!("{MESSAGE} [{}]", codes::review::TOO_LARGE_TO_READ.id),
                "lastTransitionTime": now,
            })
        })
        .collect();
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": object.metadata.name, "uid": object.metadata.uid },
        "status": { "conditions": conditions },
    })
}
