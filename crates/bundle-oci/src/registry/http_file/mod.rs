//! Download of a gzipped archive from an HTTP server. The rules for connections, addresses,
//! redirects and the minimum rate are the same as for registry requests.

mod error;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, stream};
use reqwest::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request, Response, StatusCode};
use url::Url;

use crate::clock::runtime_instant;
use crate::limits::{Limits, REDIRECTS};
use crate::manifest::Descriptor;
use crate::registry::auth::token::secret;
use crate::registry::http::pools::{authority, is_loopback};
use crate::registry::http::zone::NetworkZone;
use crate::registry::transport::redirect_target;
use crate::registry::{Client, Login, RegistryErrorReason};
use crate::transfer::archive_file::{self, StoredBytes};
use crate::transfer::rate::RateWindow;
use crate::unpack::FileSink;

pub use error::{HttpFileError, HttpFileReason};

/// Maximum number of characters of a media type in a message.
const MEDIA_TYPE_CHARS: usize = 64;

/// A request for a file on an HTTP server.
#[derive(Debug, Clone)]
pub struct HttpFileRequest {
    url: Url,
    authorization: Option<HeaderValue>,
    access: HttpFileAccess,
}

/// Kinds of connections that are allowed for the server of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct HttpFileAccess {
    /// `true` if the server may have a loopback, link-local or private address.
    pub private_addresses: bool,
    /// `true` if the URL may have no TLS. For a loopback URL, plain HTTP is always allowed.
    pub plain_http: bool,
    /// `true` if every certificate of the server is accepted.
    pub any_certificate: bool,
}

impl HttpFileAccess {
    /// Returns the nearest network zone in which the server of the request may be.
    fn nearest(self) -> NetworkZone {
        if self.private_addresses {
            NetworkZone::Local
        } else {
            NetworkZone::Public
        }
    }
}

impl HttpFileRequest {
    /// Creates a request. `access` applies to the server of the URL. The target of a redirect to
    /// another server needs TLS with a verified certificate. A redirect to a network zone that
    /// is nearer than the zone of the server is rejected.
    pub fn new(
        url: &str,
        login: Option<&Login>,
        access: HttpFileAccess,
    ) -> Result<Self, HttpFileError> {
        let invalid = |why: String| HttpFileError {
            url: url.to_owned(),
            reason: HttpFileReason::Settings(why),
        };
        let parsed = Url::parse(url).map_err(|error| invalid(error.to_string()))?;
        let authorization = match login {
            None => None,
            Some(Login::Password { .. }) => login.and_then(Login::basic),
            Some(Login::Bearer(token) | Login::IdentityToken(token)) => {
                Some(format!("Bearer {token}"))
            }
        };
        let authorization = authorization.as_deref().map(secret).transpose();
        Ok(Self {
            url: parsed,
            authorization: authorization.map_err(|reason| invalid(reason.to_string()))?,
            access,
        })
    }

    /// Returns the URL for messages, without its query. The query can contain a signature that
    /// permits access.
    fn name(&self) -> String {
        let mut url = self.url.clone();
        url.set_query(None);
        url.into()
    }

    fn error(&self, reason: impl Into<HttpFileReason>) -> HttpFileError {
        HttpFileError {
            url: self.name(),
            reason: reason.into(),
        }
    }
}

/// A received file in a temporary file without a name.
#[derive(Debug)]
pub struct ReceivedFile {
    url: String,
    file: File,
    received: Received,
}

/// Received bytes: digest, size and media type.
#[derive(Debug)]
struct Received {
    bytes: StoredBytes,
    /// Media type in the response, for messages.
    media_type: String,
}

impl Received {
    fn check(&self) -> Result<(), HttpFileReason> {
        if self.bytes.is_gzip {
            return Ok(());
        }
        Err(HttpFileReason::NotGzip {
            media_type: self.media_type.clone(),
        })
    }
}

impl ReceivedFile {
    /// Returns the URL without its query.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the descriptor of the file.
    pub fn descriptor(&self) -> &Descriptor {
        &self.received.bytes.descriptor
    }

    /// Fails if the file is not compressed with gzip.
    pub fn check(&self) -> Result<(), HttpFileError> {
        self.received.check().map_err(|reason| HttpFileError {
            url: self.url.clone(),
            reason,
        })
    }

    /// Unpacks the file into `sink` on a separate thread.
    pub async fn unpack<S>(
        self,
        limits: Limits,
        sink: S,
    ) -> Result<(BTreeMap<String, S::File>, S), HttpFileError>
    where
        S: FileSink<File: Send> + Send + 'static,
    {
        self.check()?;
        let archive = self.received.bytes.descriptor;
        let unpacked = archive_file::unpack(self.file, archive, limits, sink).await;
        unpacked.map_err(|error| HttpFileError {
            url: self.url,
            reason: error.into(),
        })
    }
}

impl Client {
    /// Downloads a file to a temporary file in `folder`. Fails if the file is larger than the
    /// maximum size of a layer.
    pub async fn receive_file(
        &self,
        request: &HttpFileRequest,
        limits: &Limits,
        folder: &Path,
    ) -> Result<ReceivedFile, HttpFileError> {
        let file = fs_err::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
        let file = file.map_err(|error| request.error(HttpFileReason::Storage(error)))?;
        let (file, received) = self.receive(request, limits, file).await?;
        Ok(ReceivedFile {
            url: request.name(),
            file,
            received,
        })
    }

    /// Downloads a gzipped file, and returns its descriptor. The bytes of the file are discarded.
    pub async fn describe_file(
        &self,
        request: &HttpFileRequest,
        limits: &Limits,
    ) -> Result<Descriptor, HttpFileError> {
        let (_, received) = self.receive(request, limits, io::sink()).await?;
        received.check().map_err(|reason| request.error(reason))?;
        Ok(received.bytes.descriptor)
    }

    async fn receive<W: Write + Send + 'static>(
        &self,
        request: &HttpFileRequest,
        limits: &Limits,
        target: W,
    ) -> Result<(W, Received), HttpFileError> {
        let limit = limits.layer;
        let allowance = self.allowance(limit);
        let receiving = async {
            let response = self.open_file(request).await?;
            if response
                .content_length()
                .is_some_and(|length| length > limit)
            {
                return Err(HttpFileReason::TooLarge { limit });
            }
            let media_type = media_type(&response);
            let pieces = self.pieces(response, limit);
            let (target, bytes) = archive_file::store(pieces, target).await?;
            Ok((target, Received { bytes, media_type }))
        };
        let received = tokio::time::timeout(allowance, receiving).await;
        let received = received.unwrap_or(Err(HttpFileReason::Stalled { after: allowance }));
        received.map_err(|reason| request.error(reason))
    }

    /// Sends the request and follows redirects. Credentials are sent only to the server of the
    /// request, never to redirect targets.
    async fn open_file(&self, request: &HttpFileRequest) -> Result<Response, HttpFileReason> {
        let access = request.access;
        let http = if access.any_certificate {
            Arc::new(self.http.without_verification(&request.url))
        } else {
            Arc::clone(&self.http)
        };
        let mut url = request.url.clone();
        let mut reach = access.nearest();
        for hop in 0..=REDIRECTS {
            let on_server = url.origin() == request.url.origin();
            let may_be_plain = is_loopback(&url) || (on_server && access.plain_http);
            if url.scheme() != "https" && !may_be_plain {
                let host = authority(&url);
                return Err(HttpFileReason::NoTls { host });
            }
            let from = if on_server { access.nearest() } else { reach };
            let mut get = Request::new(Method::GET, url.clone());
            let headers = get.headers_mut();
            // The server must not compress the response, because the digest is the digest of the
            // stored file.
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            if let Some(value) = &request.authorization
                && on_server
            {
                headers.insert(AUTHORIZATION, value.clone());
            }
            let sent = http.send_from(get, from).await;
            let response = sent.map_err(|reason| match reason {
                RegistryErrorReason::Redirect { to, why } if hop == 0 => {
                    HttpFileReason::Address { to, why }
                }
                reason => reason.into(),
            })?;
            let status = response.status();
            if !status.is_redirection() {
                return match status {
                    StatusCode::OK => Ok(response),
                    status => Err(HttpFileReason::status(status)),
                };
            }
            // The peer may be a proxy in a nearer zone than the server. Therefore the redirect is
            // checked against the farther of two zones: the nearest allowed zone, and the zone of
            // the peer.
            let here = NetworkZone::of_response(&url, response.remote_addr());
            reach = from.min(here);
            url = redirect_target(&url, &response, &Method::GET)?;
        }
        Err(HttpFileReason::Redirect {
            to: authority(&url),
            why: "too many redirects",
        })
    }

    /// Returns the pieces of a body of at most `limit` bytes.
    fn pieces(
        &self,
        response: Response,
        limit: u64,
    ) -> impl Stream<Item = Result<Bytes, HttpFileReason>> {
        let download = FileDownload {
            client: self.clone(),
            response,
            received: 0,
            limit,
            rate: RateWindow::new(0),
        };
        stream::try_unfold(download, async |mut download| {
            let piece = download.piece().await?;
            Ok(piece.map(|piece| (piece, download)))
        })
    }
}

/// A body that is being received.
struct FileDownload {
    client: Client,
    response: Response,
    received: u64,
    limit: u64,
    rate: RateWindow,
}

impl FileDownload {
    /// Returns the next piece, and `None` after the last piece.
    async fn piece(&mut self) -> Result<Option<Bytes>, HttpFileReason> {
        let before = runtime_instant();
        let piece = self.client.http.piece(&mut self.response).await?;
        let Some(piece) = piece else {
            return Ok(None);
        };
        self.received += piece.len() as u64;
        if self.received > self.limit {
            return Err(HttpFileReason::TooLarge { limit: self.limit });
        }
        let waited = runtime_instant().duration_since(before);
        let minimum = self.client.deadlines.minimum_rate();
        let rated = self.rate.add(waited, self.received, minimum);
        rated.map_err(RegistryErrorReason::from)?;
        Ok(Some(piece))
    }
}

/// Returns the media type of a response, without its parameters.
fn media_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE);
    let text = value.and_then(|value| value.to_str().ok());
    let text = text.unwrap_or_default().split(';').next();
    let text = text.unwrap_or_default().trim();
    text.chars().take(MEDIA_TYPE_CHARS).collect()
}

#[cfg(test)]
mod tests;
