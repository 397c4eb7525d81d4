//! One object on the cluster, as the installing identity reaches it: apply, look, delete. The answers are metadata, never the whole object.
//! Not here: what to apply, in which order, or what an error means for the installation.

use std::collections::BTreeMap;

use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::plan::drift::{Entry, Fingerprint};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions};
use kube::client::Body;
use kube::core::metadata::PartialObjectMeta;
use kube::core::response::Status;
use kube::{Client, Resource as _};
use serde_json::Value;

use super::apis::Kind;

/// The labels of ours that an installed object carries.
pub(super) const LABELS: [&str; 3] = [
    names::LABEL_OWNER_KIND,
    names::LABEL_OWNER_NAME,
    names::LABEL_APPLYSET_PART_OF,
];

/// What is known of an object from its metadata.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    /// Its uid.
    pub(super) uid: String,
    /// Its resource version, if it is a number as the API server's own storage has it.
    pub(super) version: u64,
    /// The BundleDeployment that its labels name.
    pub(super) owner: Option<String>,
    /// What our last apply left, if our entry is there.
    pub(super) print: Option<Fingerprint>,
    /// Whether it is on its way out.
    pub(super) deleting: bool,
}

impl Seen {
    pub(super) fn of(object: &PartialObjectMeta<DynamicObject>) -> Self {
        let meta = &object.metadata;
        let none = BTreeMap::new();
        let labels = meta.labels.as_ref().unwrap_or(&none);
        let entries = meta.managed_fields.iter().flatten().filter_map(|entry| {
            Some(Entry {
                manager: entry.manager.as_deref()?,
                operation: entry.operation.as_deref().unwrap_or_default(),
                subresource: entry.subresource.as_deref().unwrap_or_default(),
                fields: &entry.fields_v1.as_ref()?.0,
            })
        });
        let owned_by_deployment = labels
            .get(names::LABEL_OWNER_KIND)
            .is_some_and(|kind| kind == super::DEPLOYMENT);
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            version: meta
                .resource_version
                .as_deref()
                .and_then(|version| version.parse().ok())
                .unwrap_or(0),
            owner: labels
                .get(names::LABEL_OWNER_NAME)
                .filter(|_| owned_by_deployment)
                .cloned(),
            print: Fingerprint::of(names::FIELD_MANAGER, entries, labels, &LABELS),
            deleting: meta.deletion_timestamp.is_some(),
        }
    }
}

/// The API of `kind`, in `namespace` if its objects live in one.
pub(super) fn api(client: &Client, kind: &Kind, namespace: Option<&str>) -> Api<DynamicObject> {
    match namespace.filter(|_| kind.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
        None => Api::all_with(client.clone(), &kind.resource),
    }
}

/// The same for metadata alone.
pub(super) fn metadata_api(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
) -> Api<PartialObjectMeta<DynamicObject>> {
    match namespace.filter(|_| kind.namespaced) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource),
        None => Api::all_with(client.clone(), &kind.resource),
    }
}

/// What an apply left, and what the API server said about it.
pub(super) struct Applied {
    pub(super) seen: Seen,
    pub(super) warnings: Vec<String>,
}

/// Applies `value` as ours. Fields that others have and we do not name stay theirs.
pub(super) async fn apply(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    value: &Value,
) -> Result<Applied, kube::Error> {
    let url = DynamicObject::url_path(
        &kind.resource,
        id.namespace.as_deref().filter(|_| kind.namespaced),
    );
    let parameters = PatchParams::apply(names::FIELD_MANAGER).force();
    let request = kube::core::Request::new(url)
        .patch_metadata(&id.name, &parameters, &Patch::Apply(value))
        .map_err(kube::Error::BuildRequest)?;
    let response = client.send(request.map(Body::from)).await?;
    let warnings = response
        .headers()
        .get_all(http::header::WARNING)
        .iter()
        .filter_map(|header| warning(header.to_str().ok()?))
        .collect();
    let failed = !response.status().is_success();
    let code = response.status().as_u16();
    let body = response.into_body().collect_bytes().await?;
    if failed {
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
            code,
            message: String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned(),
            ..Status::default()
        });
        return Err(kube::Error::Api(Box::new(status)));
    }
    let object: PartialObjectMeta<DynamicObject> =
        serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
    Ok(Applied {
        seen: Seen::of(&object),
        warnings,
    })
}

/// The text of a `Warning` header: `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let quoted = header.splitn(3, ' ').nth(2)?;
    let text = quoted.strip_prefix('"')?;
    let text = text.strip_suffix('"').unwrap_or(text);
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

/// The metadata of one object, if it is there. A kind that the server does not have has no objects.
pub(super) async fn look(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
) -> Result<Option<Seen>, kube::Error> {
    let api = api(client, kind, id.namespace.as_deref());
    match api.get_metadata_opt(&id.name).await {
        Ok(found) => Ok(found.map(|object| Seen::of(&object))),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// One whole object, if it is there. A kind that the server does not have has no objects.
pub(super) async fn read(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    name: &str,
) -> Result<Option<DynamicObject>, kube::Error> {
    match api(client, kind, namespace).get_opt(name).await {
        // The server answers in plain text where it does not even know the kind.
        Err(error) if is_not_found(&error) => Ok(None),
        answer => answer,
    }
}

/// The metadata of all objects of a kind that `selector` names; page by page.
pub(super) async fn list(
    client: &Client,
    kind: &Kind,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> Result<Vec<(ObjectId, Seen)>, kube::Error> {
    let api = api(client, kind, namespace);
    let mut parameters = ListParams {
        label_selector: selector.map(str::to_owned),
        ..ListParams::default().limit(500)
    };
    let mut all = Vec::new();
    loop {
        let page = api.list_metadata(&parameters).await?;
        all.extend(
            page.items
                .iter()
                .map(|object| (id_of(kind, object), Seen::of(object))),
        );
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(all),
        }
    }
}

/// What names an object of `kind`.
pub(super) fn id_of(kind: &Kind, object: &PartialObjectMeta<DynamicObject>) -> ObjectId {
    ObjectId {
        group: kind.resource.group.clone(),
        version: kind.resource.version.clone(),
        kind: kind.resource.kind.clone(),
        namespace: object.metadata.namespace.clone(),
        name: object.metadata.name.clone().unwrap_or_default(),
    }
}

/// Deletes just the object with this uid. One that has gone already, or was replaced, is no error.
pub(super) async fn delete(
    client: &Client,
    kind: &Kind,
    id: &ObjectId,
    uid: &str,
) -> Result<(), kube::Error> {
    let parameters = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::background()
    };
    let request = kube::core::Request::new(DynamicObject::url_path(
        &kind.resource,
        id.namespace.as_deref().filter(|_| kind.namespaced),
    ))
    .delete(&id.name, &parameters)
    .map_err(kube::Error::BuildRequest)?;
    match client.request_text(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Whether the API server said that there is no such thing.
pub(super) fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Whether the API server refused for want of rights.
pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Whether the same request may succeed a little later: the server is busy, starting, or out of reach.
pub(super) fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => matches!(status.code, 409 | 429) || status.code >= 500,
        kube::Error::Service(_) | kube::Error::HyperError(_) => true,
        _ => false,
    }
}

/// What an error of the API server says, in one line.
pub(super) fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => crate::chain(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_read_as_kubectl_shows_them() {
        assert_eq!(
            warning(r#"299 - "policy/v1beta1 is \"old\"""#).as_deref(),
            Some(r#"policy/v1beta1 is "old""#)
        );
        assert_eq!(warning("299"), None);
    }
}
