//! Writes the status and Events. The status is written only if it changed.

use bundle_api::names;
use bundle_cluster::ByName;
use bundle_core::diagnostic::Code;
use bundle_core::plan::inventory;
use bundle_core::text::{bounded, visible};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::discovery::ApiResource;
use kube::runtime::events::{Event, EventType};
use serde::Serialize;
use serde_json::{Value, json};

use crate::reconcile::drift::restored::RestoredObject;
use crate::reconcile::status::recorders::Recorders;

/// Maximum length of the note of an Event, in bytes.
const NOTE_LIMIT: usize = 1000;
/// Maximum number of restored objects in one reconcile that get a separate Event.
const MAX_RESTORE_EVENTS: usize = 3;
/// Reason of Events about restored objects.
const DRIFT_CORRECTED: &str = "DriftCorrected";

/// Writes the status `new` if it differs from the stored status `old`. Does nothing if the object
/// was deleted, or deleted and created again with another uid. Returns true if the status was
/// written.
pub(in crate::reconcile) async fn write<T: Serialize + PartialEq>(
    client: &Client,
    resource: &ApiResource,
    object: &DynamicObject,
    old: &T,
    new: &T,
) -> Result<bool, kube::Error> {
    if old == new {
        return Ok(false);
    }
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut patch = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": name, "uid": object.metadata.uid },
        "status": new,
    });
    // Only the module `seal` writes the field `admission`, with a separate field manager.
    if let Some(status) = patch["status"].as_object_mut() {
        status.remove("admission");
    }
    let parameters = PatchParams::apply(names::STATUS_MANAGER).force();
    match ByName(&api)
        .patch_status(name, &parameters, &Patch::Apply(&patch))
        .await
    {
        Ok(stored) => remove_extra_fields(&api, &stored, &patch["status"]).await,
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes status fields that other clients have written and that `status` does not contain.
/// Server-side apply does not remove such fields. Returns true, because the status was written
/// before.
async fn remove_extra_fields(
    api: &Api<DynamicObject>,
    stored: &DynamicObject,
    status: &Value,
) -> Result<bool, kube::Error> {
    let fields = stored.data["status"].as_object().into_iter().flatten();
    let extra_fields: serde_json::Map<String, Value> = fields
        .filter(|(field, _)| *field != "admission" && status.get(field).is_none())
        .map(|(field, _)| (field.clone(), Value::Null))
        .collect();
    if extra_fields.is_empty() {
        return Ok(true);
    }
    let patch = json!({
        "metadata": {
            "uid": stored.metadata.uid,
            "resourceVersion": stored.metadata.resource_version,
        },
        "status": extra_fields,
    });
    let parameters = PatchParams {
        field_manager: Some(names::STATUS_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let name = stored.metadata.name.as_deref().unwrap_or_default();
    match ByName(api)
        .patch_status(name, &parameters, &Patch::Merge(&patch))
        .await
    {
        Ok(_) => Ok(true),
        // Another client wrote or deleted the object, which starts another reconcile.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Emits Events about objects of one kind.
pub(in crate::reconcile) struct EventRecorder {
    recorders: Recorders,
    resource: ApiResource,
}

impl EventRecorder {
    pub(in crate::reconcile) fn new(client: Client, resource: ApiResource) -> Self {
        Self {
            recorders: Recorders::new(client),
            resource,
        }
    }

    /// Emits a warning Event about a rejection or failure. The reason of the Event is the
    /// diagnostic code.
    pub(in crate::reconcile) async fn warn(&self, object: &DynamicObject, code: Code, note: &str) {
        self.emit(object, EventType::Warning, code.id, note).await;
    }

    /// Emits an Event of type `Normal`.
    pub(in crate::reconcile) async fn note(
        &self,
        object: &DynamicObject,
        reason: &str,
        note: &str,
    ) {
        self.emit(object, EventType::Normal, reason, note).await;
    }

    /// Emits Events about restored objects. Each of the first [`MAX_RESTORE_EVENTS`] objects gets a
    /// separate Event whose field `related` names the restored object.
    pub(in crate::reconcile) async fn restored(
        &self,
        object: &DynamicObject,
        restored: &[RestoredObject],
    ) {
        let (first, rest) = restored.split_at(restored.len().min(MAX_RESTORE_EVENTS));
        for restored in first {
            let related = inventory::parts(&restored.key);
            let related = related.map(|(kind, namespace, name)| ObjectReference {
                kind: Some(kind.kind),
                namespace: namespace.map(str::to_owned),
                name: Some(name.to_owned()),
                ..ObjectReference::default()
            });
            let note = format!("restored {restored}");
            self.publish(object, (EventType::Normal, DRIFT_CORRECTED), &note, related)
                .await;
        }
        if !rest.is_empty() {
            let note = "restored more objects at the same time; the log names them";
            self.note(object, DRIFT_CORRECTED, note).await;
        }
    }

    async fn emit(&self, object: &DynamicObject, kind: EventType, reason: &str, note: &str) {
        self.publish(object, (kind, reason), note, None).await;
    }

    async fn publish(
        &self,
        object: &DynamicObject,
        (kind, reason): (EventType, &str),
        note: &str,
        related: Option<ObjectReference>,
    ) {
        let about = ObjectReference {
            api_version: Some(self.resource.api_version.clone()),
            kind: Some(self.resource.kind.clone()),
            name: object.metadata.name.clone(),
            uid: object.metadata.uid.clone(),
            ..ObjectReference::default()
        };
        let note = bounded(&visible(note), NOTE_LIMIT);
        let uid = object.metadata.uid.as_deref();
        let recorder = self.recorders.get(uid, reason, &note);
        let event = Event {
            type_: kind,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: related,
        };
        if let Err(error) = recorder.publish(&event, &about).await {
            tracing::debug!(error = crate::chain(&error), "cannot write an Event");
        }
    }
}

#[cfg(test)]
mod tests {
    use bundle_core::diagnostic::codes;
    use http::{Method, Request, Response};
    use kube::client::Body;

    use super::*;

    const EVENT: &str =
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"web.1"}}"#;

    /// Events with different notes are created separately. A repeated Event is counted by a patch
    /// of the first Event.
    #[tokio::test]
    async fn events_with_other_notes_are_not_counted_as_one() {
        let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some((request, reply)) = server.next_request().await {
                let (head, sent) = request.into_parts();
                let sent = sent.collect_bytes().await.unwrap();
                let event: Value = serde_json::from_slice(&sent).unwrap();
                tell.send((head.method, event["note"].clone())).unwrap();
                reply.send_response(Response::new(Body::from(EVENT.as_bytes().to_vec())));
            }
        });
        let resource = ApiResource::erase::<bundle_api::BundleDeployment>(&());
        let object = DynamicObject::new("web", &resource);
        let events = EventRecorder::new(Client::new(service, "default"), resource);
        let code = codes::install::INVALID_OBJECT;
        for note in ["one", "two", "one"] {
            events.warn(&object, code, note).await;
        }
        let restored = |cause: &str| RestoredObject {
            key: "ConfigMap/team-a/web".to_owned(),
            cause: Some(cause.to_owned()),
        };
        for cause in ["ana", "eve"] {
            events.restored(&object, &[restored(cause)]).await;
        }
        for (method, note) in [
            (Method::POST, "one"),
            (Method::POST, "two"),
            (Method::PATCH, "one"),
            (Method::POST, "restored ConfigMap/team-a/web (ana)"),
            (Method::POST, "restored ConfigMap/team-a/web (eve)"),
        ] {
            assert_eq!(told.recv().await.unwrap(), (method, note.into()));
        }
    }
}
