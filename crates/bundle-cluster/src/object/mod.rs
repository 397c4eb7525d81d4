//! Requests that read, list, delete and release objects. Most requests read only metadata.
//! [`whole`] reads whole objects with bounded memory.

use std::collections::BTreeMap;

use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::plan::drift::{
    self, FieldsEntry, Fingerprint, ObjectRevision, ObjectRevisionParts, ObjectState,
};
use bundle_core::plan::inventory::{CreationMark, LiveObject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, GetParams, ListParams, Preconditions};
use kube::client::Body;
use kube::core::DynamicResourceScope;
use kube::core::discovery::ApiResource;
use kube::core::metadata::PartialObjectMeta;

use crate::discovery::Kind;
pub use crate::error::{
    error_message, invalid, is_conflict, is_definite, is_forbidden, is_not_found, is_passing,
};
use crate::{ByName, ObjectUrl, namespaced};

pub mod custom_resources;
mod release;
pub mod whole;

pub use release::{ReleaseResult, release};

/// Labels of this project on installed objects.
pub const LABELS: [&str; 3] = [
    names::LABEL_OWNER_KIND,
    names::LABEL_OWNER_NAME,
    names::LABEL_APPLYSET_PART_OF,
];

/// Page size of lists. The client reduces the size for a page that exceeds the memory limit.
pub const PAGE_SIZE: u32 = 100;

/// Object on the cluster, read from its metadata.
#[derive(Debug, Clone)]
pub struct ObservedObject {
    /// Uid of the object.
    pub uid: String,
    /// Resource version as a number. 0 if the API server returned no number.
    pub version: u64,
    /// State for the comparison with the last apply.
    pub state: ObjectState,
    /// Creation time in seconds since 1970. `None` if the time is unknown.
    pub created: Option<i64>,
    /// Creation mark in the annotations. `None` if the object has no mark.
    pub mark: Option<CreationMark>,
    /// Field manager of the last write, if the manager is known and is not the field manager of
    /// this project.
    pub writer: Option<Box<str>>,
}

impl ObservedObject {
    /// Reads the metadata of an object of `kind`.
    pub fn of(kind: &Kind, object: &PartialObjectMeta<DynamicObject>) -> Self {
        let meta = &object.metadata;
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let entries = entries(meta);
        let resource_version = meta.resource_version.as_deref().unwrap_or_default();
        let rest = serde_json::to_string(&(
            labels,
            meta.annotations.as_ref(),
            meta.finalizers.as_ref(),
            meta.owner_references.as_ref(),
        ))
        .unwrap_or_else(|_| resource_version.to_owned());
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: resource_version.parse().unwrap_or(0),
            state: ObjectState {
                fingerprint: Fingerprint::of(
                    names::FIELD_MANAGER,
                    entries.clone(),
                    labels,
                    &LABELS,
                ),
                revision: ObjectRevision::of(ObjectRevisionParts {
                    group: &kind.resource.group,
                    kind: &kind.resource.kind,
                    generation: meta.generation,
                    resource_version,
                    rest: &rest,
                }),
            },
            created: meta
                .creation_timestamp
                .as_ref()
                .map(|time| time.0.as_second()),
            mark: meta
                .annotations
                .as_ref()
                .and_then(|all| CreationMark::parse(all.get(names::ANNOTATION_CREATION_MARK)?)),
            writer: drift::last_writer(names::FIELD_MANAGER, entries).map(Box::from),
        }
    }

    /// Returns the properties that determine the owner of the object.
    pub fn live(&self) -> LiveObject<'_> {
        LiveObject {
            uid: &self.uid,
            created: self.created,
            applied_by_us: self.state.fingerprint.is_some(),
            mark: self.mark,
        }
    }
}

/// Returns the entries of `managedFields` that have all required fields.
pub fn entries(metadata: &ObjectMeta) -> impl Iterator<Item = FieldsEntry<'_>> + Clone {
    metadata.managed_fields.iter().flatten().filter_map(entry)
}

fn entry(entry: &ManagedFieldsEntry) -> Option<FieldsEntry<'_>> {
    Some(FieldsEntry {
        manager: entry.manager.as_deref()?,
        operation: entry.operation.as_deref().unwrap_or_default(),
        subresource: entry.subresource.as_deref().unwrap_or_default(),
        api_version: entry.api_version.as_deref().unwrap_or_default(),
        time: entry.time.as_ref().map(|time| time.0.as_second()),
        fields: &entry.fields_v1.as_ref()?.0,
    })
}

/// Returns the API of `kind`, in `namespace` for a namespaced kind. `K` selects whole objects or
/// their metadata.
pub fn api<K>(client: &Client, kind: &Kind, namespace: Option<&str>) -> Result<Api<K>, kube::Error>
where
    K: kube::Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    namespaced(
        client,
        &kind.resource,
        namespace.filter(|_| kind.namespaced),
    )
}

/// Returns the metadata of one object. Returns `None` if the object or its kind does not exist.
pub async fn observe(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
) -> Result<Option<ObservedObject>, kube::Error> {
    let api: Api<DynamicObject> = api(client, kind, id.namespace.as_deref())?;
    match ByName(&api).get_metadata_opt(&id.name).await {
        Ok(found) => Ok(found.map(|object| ObservedObject::of(kind, &object))),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns one whole object. Returns `None` if the object or its kind does not exist. Fails if the
/// object is too large.
pub async fn read(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    let namespace = namespace.filter(|_| kind.namespaced);
    let request = ObjectUrl::parse(&kind.resource, namespace, name)
        .and_then(|url| url.requests().get(url.name(), &GetParams::default()))
        .map_err(kube::Error::BuildRequest)?;
    let answer = client.send(request.map(Body::from)).await?;
    whole::receive(answer).await
}

/// Calls `each` with id and uid of each object of a kind, page by page, because the number of
/// objects is not bounded.
pub async fn list(
    client: &Client,
    kind: &Kind,
    mut each: impl FnMut(ObjectId, &str) + Send,
) -> Result<(), kube::Error> {
    let api: Api<DynamicObject> = api(client, kind, None)?;
    let mut parameters = ListParams::default().limit(PAGE_SIZE);
    loop {
        let page = api.list_metadata(&parameters).await?;
        for object in &page.items {
            let uid = object.metadata.uid.as_deref().unwrap_or_default();
            each(id_of(kind, object), uid);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(()),
        }
    }
}

/// Returns the identity of an object of `kind`.
pub fn id_of(kind: &Kind, object: &PartialObjectMeta<DynamicObject>) -> ObjectId {
    ObjectId {
        group: kind.resource.group.clone(),
        version: kind.resource.version.clone(),
        kind: kind.resource.kind.clone(),
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// Deletes the object only if it has this uid. Returns true if the object no longer exists. Returns
/// false if a finalizer may delay its deletion.
pub async fn delete(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
) -> Result<bool, kube::Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    let namespace = id.namespace.as_deref().filter(|_| kind.namespaced);
    let request = ObjectUrl::parse(&kind.resource, namespace, &id.name)
        .and_then(|url| url.requests().delete(url.name(), &parameters))
        .map_err(kube::Error::BuildRequest)?;
    match client.request_status::<DynamicObject>(request).await {
        // The server returns the object for some kinds, and for all kinds if a finalizer delays the
        // deletion.
        Ok(answer) => Ok(answer.is_right()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        // Status 422 is not handled here, because admission policies also reject requests with 422.
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let now = observe(client, kind, id).await?;
            Ok(now.is_none_or(|now| now.uid != uid))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
