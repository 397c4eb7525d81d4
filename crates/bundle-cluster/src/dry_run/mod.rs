//! Server-side dry runs as a requester. This is the only module that impersonates users. It sends
//! only dry runs. `bundle_core::rights` interprets the responses.

mod headers;

use crate::ObjectUrl;
use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::object::rejection::Rejection;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunVerdict, verdict};
use http::{Extensions, HeaderMap};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::core::discovery::ApiResource;
use kube::core::request::Error as RequestError;
use kube::core::response::Status;
use serde_json::json;

use crate::connection::{IMPERSONATE_USER, ServiceAccount, missing_right};
use crate::error::rejection_message;
use crate::object::whole::ObjectText;

pub use headers::IdentityError;

/// Largest part of a response body that a message quotes, in bytes. A message quotes the body if
/// the response is not a `Status`.
const MAX_QUOTED_BYTES: usize = 512;

/// Client that sends only dry runs as one requester.
pub struct RequesterDryRun {
    client: Client,
    headers: HeaderMap,
    /// Requester, if it is a ServiceAccount. The pod needs a Role for each ServiceAccount that it
    /// impersonates.
    account: Option<ServiceAccount>,
}

/// Response to a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunAnswer {
    /// Result of the dry run.
    pub verdict: DryRunVerdict,
    /// HTTP status code, or 0 if the API server sent no response.
    pub code: u16,
    /// Causes in the `Status`, as reason and field.
    pub causes: Vec<(String, String)>,
    /// Resulting object, if the dry run is allowed and [`Detail::Object`] was requested.
    pub object: Option<ObjectText>,
}

/// Body of an apply request.
#[derive(Debug, Clone, Default)]
pub struct ApplyBody {
    /// Object as JSON.
    pub json: Vec<u8>,
    /// Extensions of the request, for layers of the client.
    pub extensions: Extensions,
}

impl ApplyBody {
    /// Returns `request` with this body and these extensions.
    pub fn in_request<B>(self, request: http::Request<B>) -> http::Request<Vec<u8>> {
        let mut request = request.map(|_| self.json);
        request.extensions_mut().extend(self.extensions);
        request
    }
}

/// Requested part of the resulting object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Only the metadata of the object, for callers that do not read the object.
    Metadata,
    /// The whole object.
    Object,
}

impl RequesterDryRun {
    /// Returns a client that impersonates `requester` with the credential of `own`. Fails if the
    /// user name, a group, or another value of the requester cannot be sent in a header.
    pub fn new(own: Client, requester: &Requester) -> Result<Self, IdentityError> {
        let account = requester.service_account();
        Ok(Self {
            client: own,
            headers: headers::of(requester)?,
            account: account
                .and_then(|(namespace, name)| ServiceAccount::parse(namespace, name).ok()),
        })
    }

    /// Returns the user name of the requester, as in the header of the requests.
    pub fn user(&self) -> &str {
        let user = self.headers.get(IMPERSONATE_USER);
        // `to_str` accepts only ASCII, and names of users can have other characters.
        user.and_then(|user| std::str::from_utf8(user.as_bytes()).ok())
            .unwrap_or_default()
    }

    /// Sends an apply as a dry run, with the body, `force` and field manager of the real request.
    pub async fn apply(
        &self,
        resource: &ApiResource,
        id: &ObjectId,
        (body, force): (ApplyBody, bool),
        detail: Detail,
    ) -> DryRunAnswer {
        let parameters = PatchParams {
            dry_run: true,
            force,
            ..PatchParams::apply(names::FIELD_MANAGER)
        };
        let request = patch_request((resource, id), &parameters, &Patch::Apply(()), detail);
        self.send(request.map(|request| body.in_request(request)), detail)
            .await
    }

    /// Sends a JSON patch as a dry run, with the field manager of the real request.
    pub async fn patch(
        &self,
        resource: &ApiResource,
        id: &ObjectId,
        patch: &json_patch::Patch,
        detail: Detail,
    ) -> DryRunAnswer {
        let parameters = json_patch_parameters(true);
        let patch = Patch::Json(patch.clone());
        let request = patch_request((resource, id), &parameters, &patch, detail);
        self.send(request, detail).await
    }

    /// Sends the deletion of the object with this uid as a dry run, and returns the verdict.
    pub async fn delete(&self, resource: &ApiResource, id: &ObjectId, uid: &str) -> DryRunVerdict {
        // The API server reads the options from the body and then ignores the query. The query
        // contains `dryRun` too, for the guard and for the audit log.
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "dryRun": ["All"],
            "preconditions": { "uid": uid },
            "propagationPolicy": "Background",
        });
        let request = url(resource, id).and_then(|url| {
            http::Request::delete(format!("{}?dryRun=All", url.path()))
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(options.to_string().into_bytes())
                .map_err(RequestError::BuildRequest)
        });
        match self.send(request, Detail::Metadata).await.verdict {
            // The object was deleted or replaced. The real deletion would also have no effect.
            DryRunVerdict::Missing(_) => DryRunVerdict::Allowed,
            verdict => verdict,
        }
    }

    async fn send(
        &self,
        request: Result<http::Request<Vec<u8>>, RequestError>,
        detail: Detail,
    ) -> DryRunAnswer {
        let sent = async {
            let mut request = request.map_err(kube::Error::BuildRequest)?;
            request.headers_mut().extend(self.headers.clone());
            self.client.send(request.map(Body::from)).await
        };
        let response = match sent.await {
            Ok(response) => response,
            Err(error) => return not_answered(&error),
        };
        let (status, body) = (response.status(), response.into_body());
        let code = status.as_u16();
        if status.is_success() {
            let object = match detail {
                Detail::Metadata => discard(body).await.map(|()| None),
                Detail::Object => ObjectText::receive(body).await.map(Some),
            };
            let (verdict, object) = match object {
                Ok(object) => (DryRunVerdict::Allowed, object),
                Err(error) => (verdict_of_read_error(&error), None),
            };
            return DryRunAnswer {
                verdict,
                code,
                causes: Vec::new(),
                object,
            };
        }
        let body = match body.collect_bytes().await {
            Ok(body) => body,
            Err(error) => return not_answered(&error),
        };
        let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
            message: String::from_utf8_lossy(&body[..body.len().min(MAX_QUOTED_BYTES)])
                .into_owned(),
            ..Status::default()
        });
        let causes = causes(&status);
        let fields: Vec<&str> = causes.iter().map(|(_, field)| field.as_str()).collect();
        let verdict = verdict(Rejection {
            code,
            reason: &status.reason,
            message: &rejection_message(&status),
            fields: &fields,
        });
        DryRunAnswer {
            verdict: self.with_missing_right(verdict),
            code,
            causes,
            object: None,
        }
    }

    /// Returns `verdict`. If the requester is a ServiceAccount that the pod has no permission to
    /// impersonate, adds the commands that create the missing Role to its message.
    fn with_missing_right(&self, verdict: DryRunVerdict) -> DryRunVerdict {
        let DryRunVerdict::NotImpersonated(words) = verdict else {
            return verdict;
        };
        let hint = self
            .account
            .as_ref()
            .and_then(|account| missing_right(&words, account));
        DryRunVerdict::NotImpersonated(match hint {
            Some(hint) => format!("{words}; {hint}"),
            None => words,
        })
    }
}

/// Returns the causes in a `Status`, as reason and field.
pub fn causes(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| (cause.reason.clone(), cause.field.clone()));
    causes.collect()
}

/// Returns the verdict for a dry run that the API server allowed, but whose object could not be
/// read ([`ObjectText::receive`]).
pub fn verdict_of_read_error(error: &kube::Error) -> DryRunVerdict {
    match error {
        kube::Error::Api(status) => DryRunVerdict::Unsupported(status.message.clone()),
        error => DryRunVerdict::Unknown(crate::chain(error)),
    }
}

/// Reads the body to its end, and discards the bytes.
async fn discard(mut body: Body) -> Result<(), kube::Error> {
    while let Some(frame) = body.frame().await {
        frame?;
    }
    Ok(())
}

fn not_answered(error: &kube::Error) -> DryRunAnswer {
    DryRunAnswer {
        verdict: DryRunVerdict::Unknown(crate::chain(error)),
        code: 0,
        causes: Vec::new(),
        object: None,
    }
}

/// Returns the parameters of JSON patches. The patch and its dry runs have the same field manager.
pub fn json_patch_parameters(dry_run: bool) -> PatchParams {
    PatchParams {
        dry_run,
        field_manager: Some(names::FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Returns the request for a patch. Its response contains the requested part of the object.
fn patch_request(
    (resource, id): (&ApiResource, &ObjectId),
    parameters: &PatchParams,
    patch: &Patch<()>,
    detail: Detail,
) -> Result<http::Request<Vec<u8>>, RequestError> {
    let url = url(resource, id)?;
    let requests = url.requests();
    match detail {
        Detail::Metadata => requests.patch_metadata(url.name(), parameters, patch),
        Detail::Object => requests.patch(url.name(), parameters, patch),
    }
}

fn url(resource: &ApiResource, id: &ObjectId) -> Result<ObjectUrl, RequestError> {
    ObjectUrl::parse(resource, id.namespace.as_deref(), &id.name)
}

#[cfg(test)]
mod tests;
