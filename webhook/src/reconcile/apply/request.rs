//! The requests of applies and of dry runs of JSON patches, and their responses.

use bundle_api::names;
use bundle_cluster::{ObjectUrl, warnings};
use bundle_core::plan::unchanged::RequestHash;
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::metadata::PartialObjectMeta;
use kube::core::response::Status;

use super::PreparedApply;
use crate::clients::cluster::TOO_LARGE;
use crate::dry_run::json_patch_parameters;
use crate::reconcile::api::object::ObservedObject;
use crate::reconcile::content::objects::PreparedObject;

/// The object after an apply, and the warnings of the API server.
#[derive(Debug)]
pub(in crate::reconcile) struct Applied {
    pub(in crate::reconcile) seen: ObservedObject,
    /// The hash of the request.
    pub(in crate::reconcile) request: RequestHash,
    pub(in crate::reconcile) warnings: Vec<String>,
    /// True if the object did not exist before.
    pub(in crate::reconcile) created: bool,
}

/// Sends the apply as the user of `client`. If `dry_run` is true, the API server stores nothing.
/// The response contains only the metadata of the object.
pub(super) async fn send(
    client: &Client,
    prepared: &PreparedApply<'_>,
    dry_run: bool,
) -> Result<Applied, kube::Error> {
    let (parts, body) = send_patch(client, prepared, dry_run, false)
        .await?
        .into_parts();
    let body = body.collect_bytes().await?;
    let object: PartialObjectMeta<DynamicObject> =
        serde_json::from_slice(&body).map_err(kube::Error::SerdeError)?;
    let annotations = object.metadata.annotations.as_ref();
    if annotations.is_some_and(|annotations| annotations.contains_key(TOO_LARGE)) {
        return Err(too_large());
    }
    let warnings = warnings(&parts.headers).collect();
    Ok(Applied {
        seen: ObservedObject::of(&prepared.item().kind, &object),
        request: prepared.request_hash(),
        warnings,
        created: parts.status == http::StatusCode::CREATED,
    })
}

/// Returns the error for a successful apply whose response contains metadata that is too large or
/// cannot be parsed. The error has no HTTP error status, because the object was applied.
fn too_large() -> kube::Error {
    kube::Error::SerdeError(serde::de::Error::custom(
        "cannot read the metadata of the object: it is too large or invalid; remove labels, annotations and entries of managedFields that other actors added",
    ))
}

/// Sends a dry run as the user of `client`. Returns the unread body with the resulting object.
pub(super) async fn dry_run_object(
    client: &Client,
    prepared: &PreparedApply<'_>,
) -> Result<Body, kube::Error> {
    Ok(send_patch(client, prepared, true, true).await?.into_body())
}

/// Sends a dry run of a JSON patch as the user of `client`. Returns the unread body with the
/// resulting object.
pub(super) async fn dry_run_patch_object(
    client: &Client,
    item: &PreparedObject,
    patch: &json_patch::Patch,
) -> Result<Body, kube::Error> {
    let url = object_url(item)?;
    let (requests, parameters) = (url.requests(), json_patch_parameters(true));
    let patch = Patch::Json::<()>(patch.clone());
    let request = requests.patch(url.name(), &parameters, &patch);
    let request = request.map_err(kube::Error::BuildRequest)?;
    let response = send_request(client, request.map(Body::from)).await?;
    Ok(response.into_body())
}

async fn send_patch(
    client: &Client,
    prepared: &PreparedApply<'_>,
    dry_run: bool,
    whole: bool,
) -> Result<http::Response<Body>, kube::Error> {
    let url = object_url(prepared.item())?;
    let request = url.requests();
    let parameters = PatchParams {
        dry_run,
        force: !prepared.creates(),
        ..PatchParams::apply(names::FIELD_MANAGER)
    };
    let request = if whole {
        request.patch(url.name(), &parameters, &Patch::Apply(()))
    } else {
        request.patch_metadata(url.name(), &parameters, &Patch::Apply(()))
    };
    let request = request.map_err(kube::Error::BuildRequest)?;
    let body = prepared.body(prepared.installer()).await;
    send_request(client, body.in_request(request).map(Body::from)).await
}

fn object_url(item: &PreparedObject) -> Result<ObjectUrl, kube::Error> {
    let namespace = item.id.namespace.as_deref();
    let namespace = namespace.filter(|_| item.kind.namespaced);
    ObjectUrl::parse(&item.kind.resource, namespace, &item.id.name)
        .map_err(kube::Error::BuildRequest)
}

/// Sends a request as the user of `client`. Returns the unread response, or an error if the
/// response is not successful.
async fn send_request(
    client: &Client,
    request: http::Request<Body>,
) -> Result<http::Response<Body>, kube::Error> {
    let response = client.send(request).await?;
    let code = response.status();
    if !code.is_success() {
        let body = response.into_body().collect_bytes().await?;
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
            code: code.as_u16(),
            message: String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned(),
            ..Status::default()
        });
        return Err(kube::Error::Api(Box::new(status)));
    }
    Ok(response)
}
