//! A request to a registry: its method, target and body. The module `locations` sends it to the
//! locations of a repository in order. The module `attempt` sends it to one location.

mod attempt;
mod locations;

use bytes::Bytes;
use reqwest::{Method, Response};
use url::Url;

use super::Repository;
use super::auth::token::TokenScope;
use super::http::body::BlobPart;
use super::http::zone::NetworkZone;

pub(super) use attempt::redirect_target;

/// Request to a registry.
#[derive(Clone)]
pub(super) struct RegistryRequest<'a> {
    pub(super) repository: &'a Repository,
    pub(super) method: Method,
    pub(super) target: RequestTarget,
    pub(super) accept: Option<&'static str>,
    /// Media type and body.
    pub(super) content: Option<(&'a str, Bytes)>,
    /// Part of a blob as the body, for content that is too large for memory.
    pub(super) part: Option<BlobPart<'a>>,
    /// `true` if the request writes.
    pub(super) push: bool,
    /// Path of a second repository of the same registry, which must be readable. Needed to mount a
    /// blob.
    pub(super) mount: Option<&'a str>,
    /// Number of bytes that the client already has. The request is only for the bytes after them.
    pub(super) from: u64,
}

/// Target of a request.
#[derive(Debug, Clone)]
pub(super) enum RequestTarget {
    /// Path below the repository: `manifests/1.4.0`.
    Path(String),
    /// URL that a server returned.
    Url(ReceivedUrl),
}

/// URL that a server returned, for example the next page of a list or the location of an upload.
#[derive(Debug, Clone)]
pub(super) struct ReceivedUrl {
    url: Url,
    /// Network zone of the server that returned the URL. A request to the URL must not reach a
    /// nearer zone, unless the URL is on the registry.
    zone: NetworkZone,
}

impl ReceivedUrl {
    /// Returns a URL that `response` contains.
    pub(super) fn new(url: Url, response: &Response) -> Self {
        let zone = NetworkZone::of_response(response.url(), response.remote_addr());
        Self { url, zone }
    }

    /// Adds a parameter to the query.
    pub(super) fn add_parameter(&mut self, name: &str, value: &str) {
        self.url.query_pairs_mut().append_pair(name, value);
    }

    #[cfg(test)]
    pub(super) fn from_zone(url: Url, zone: NetworkZone) -> Self {
        Self { url, zone }
    }
}

impl<'a> RegistryRequest<'a> {
    pub(super) fn get(repository: &'a Repository, path: String) -> Self {
        Self {
            repository,
            method: Method::GET,
            target: RequestTarget::Path(path),
            accept: None,
            content: None,
            part: None,
            push: false,
            mount: None,
            from: 0,
        }
    }

    pub(super) fn head(repository: &'a Repository, path: String) -> Self {
        Self {
            method: Method::HEAD,
            ..Self::get(repository, path)
        }
    }

    pub(super) fn accepting(self, accept: &'static str) -> Self {
        Self {
            accept: Some(accept),
            ..self
        }
    }

    pub(super) fn writing(self) -> Self {
        Self { push: true, ..self }
    }

    /// Returns `true` for a read of a path below the repository.
    fn is_read_of_path(&self) -> bool {
        !self.push
            && matches!(self.method, Method::GET | Method::HEAD)
            && matches!(self.target, RequestTarget::Path(_))
    }

    fn token_scope(&self) -> TokenScope<'_> {
        TokenScope {
            repository: self.repository,
            push: self.push,
            mount: self.mount,
        }
    }
}
