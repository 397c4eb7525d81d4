//! Server-side dry runs as a requester. This is the only module that impersonates people, and it can send nothing else.
//! `bundle_core::rights` decides what an answer means.

mod headers;

use crate::ObjectUrl;
use bundle_api::names;
use bundle_core::object::ObjectId;
use bundle_core::review::Requester;
use bundle_core::rights::{DryRunVerdict, verdict};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::client::Body;
use kube::core::discovery::ApiResource;
use kube::core::request::Error as RequestError;
use kube::core::response::Status;
use serde_json::json;

use crate::connection::{ServiceAccount, missing_right};
use crate::error::words;
use crate::object::whole::ObjectText;

pub use headers::IdentityError;

/// The bytes of an answer that is no `Status` that appear in messages.
const WORDS: usize = 512;

/// Sends dry runs as one requester; it can send nothing else.
pub struct RequesterDryRun {
    client: Client,
    headers: HeaderMap,
    /// The requester, if it is a ServiceAccount: the pod needs a Role for each of those.
    account: Option<ServiceAccount>,
}

/// The answer to a dry run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DryRunAnswer {
    /// Returns whether the API server allows it.
    pub verdict: DryRunVerdict,
    /// The HTTP status code; 0 if there was no answer.
    pub code: u16,
    /// The causes in the `Status`, as reason and field.
    pub causes: Vec<(String, String)>,
    /// The object as it would be, if it is allowed and was asked for with [`Detail::Object`].
    pub object: Option<ObjectText>,
}

/// The part of an object that an answer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Its metadata, which are not read.
    Metadata,
    /// All of it.
    Object,
}

impl RequesterDryRun {
    /// Impersonates `requester` with the credential of `own`. Fails if a name of the requester cannot be sent in a header.
    pub fn new(own: Client, requester: &Requester) -> Result<Self, IdentityError> {
        let account = requester.service_account();
        Ok(Self {
            client: own,
            headers: headers::of(requester)?,
            account: account
                .and_then(|(namespace, name)| ServiceAccount::parse(namespace, name).ok()),
        })
    }

    /// Sends an apply as a dry run, with the body, the force and the field manager of the real one.
    pub async fn apply(
        &self,
        resource: &ApiResource,
        id: &ObjectId,
        (body, force): (Vec<u8>, bool),
        detail: Detail,
    ) -> DryRunAnswer {
        let parameters = PatchParams {
            dry_run: true,
            force,
            ..PatchParams::apply(names::FIELD_MANAGER)
        };
        let patch = Patch::Apply(());
        let request = url(resource, id).and_then(|url| match detail {
            Detail::Metadata => url
                .requests()
                .patch_metadata(url.name(), &parameters, &patch),
            Detail::Object => url.requests().patch(url.name(), &parameters, &patch),
        });
        self.send(request.map(|request| request.map(|_| body)), detail)
            .await
    }

    /// Sends a JSON patch as a dry run, with the field manager of the real one.
    pub async fn patch(
        &self,
        resource: &ApiResource,
        id: &ObjectId,
        patch: &json_patch::Patch,
    ) -> DryRunAnswer {
        let parameters = PatchParams {
            dry_run: true,
            field_manager: Some(names::FIELD_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        let patch = Patch::Json::<()>(patch.clone());
        let request = url(resource, id).and_then(|url| {
            url.requests()
                .patch_metadata(url.name(), &parameters, &patch)
        });
        self.send(request, Detail::Metadata).await
    }

    /// Sends the deletion of the object with this uid as a dry run.
    pub async fn delete(&self, resource: &ApiResource, id: &ObjectId, uid: &str) -> DryRunVerdict {
        // The API server reads the options from the body and then ignores the query. The query repeats dryRun for the guard and for the audit log.
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
            // It has gone already, or another one is there: the real deletion would do nothing either.
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
                Err(error) => (unread(&error), None),
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
            message: String::from_utf8_lossy(&body[..body.len().min(WORDS)]).into_owned(),
            ..Status::default()
        });
        DryRunAnswer {
            verdict: self.with_missing_right(verdict(code, &words(&status))),
            code,
            causes: causes(&status),
            object: None,
        }
    }

    /// Adds the Role to create where the pod may not impersonate a ServiceAccount that asked for content itself.
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

/// The causes in a `Status`, as reason and field.
pub fn causes(status: &Status) -> Vec<(String, String)> {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let causes = causes.map(|cause| (cause.reason.clone(), cause.field.clone()));
    causes.collect()
}

/// Returns the verdict where the object of a dry run that was allowed could not be read ([`ObjectText::receive`]).
pub fn unread(error: &kube::Error) -> DryRunVerdict {
    match error {
        kube::Error::Api(status) => DryRunVerdict::Unsupported(status.message.clone()),
        error => DryRunVerdict::Unknown(crate::chain(error)),
    }
}

/// Reads to the end and keeps nothing.
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

fn url(resource: &ApiResource, id: &ObjectId) -> Result<ObjectUrl, RequestError> {
    ObjectUrl::parse(resource, id.namespace.as_deref(), &id.name)
}

#[cfg(test)]
mod tests;
