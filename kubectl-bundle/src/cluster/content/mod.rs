//! Client of the content service of bundle-webhook: uploads and downloads of the content of
//! Bundles. Only the leader has content, so all pods are tried until one pod responds.

mod address;
mod caller;
mod port_forward;
mod response;
mod websocket;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::names::KubeName;
use bundle_oci::manifest::Descriptor;
use bundle_oci::transfer::archive_file::{self, StoreError};
use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode, header};
use reqwest::{Certificate, Client, Response, redirect};
use tokio::time::{Instant, sleep, timeout};
use url::Url;

use self::address::{ContentAddress, Route, WebhookPod};
use self::port_forward::PortForward;
use self::response::{body_chunks, entity_digest, message, rejection};
use super::{Cluster, KubeSettings};
use crate::failure::{Failure, Outcome};
use crate::system::delays;
use crate::system::network::is_loopback;

pub(crate) use caller::act_as;

/// Maximum time for the search for the leader. If the leader fails, another pod becomes the leader
/// after 15 s.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of rounds that end with a failed connection. In one round, the command tries
/// every pod.
const MAX_FAILURES: u32 = 3;
/// Timeout for opening a connection, and for receiving the headers of a response.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Minimum rate of an upload, in bytes per second. bundle-webhook requires the same rate.
const MIN_RATE: u64 = 32 << 10;

/// Settings of the content service.
#[derive(Debug, Default)]
pub(crate) struct ContentServiceSettings {
    /// URL of the content service; `None` connects to the pods of bundle-webhook through the API
    /// server.
    pub(crate) url: Option<Url>,
    /// File with certificate authorities; `None` means the authorities in the webhook registration.
    pub(crate) authorities: Option<PathBuf>,
    /// Namespace of the pods of bundle-webhook; `None` means the namespace in the webhook
    /// registration.
    pub(crate) system_namespace: Option<KubeName>,
}

/// Result of an upload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UploadOutcome {
    /// bundle-webhook stored the content.
    Stored,
    /// The Bundle already had the same content.
    Identical,
}

/// The content service of one cluster.
pub(crate) struct ContentService {
    /// Connection as the user of the kubeconfig.
    cluster: Cluster,
    address: ContentAddress,
    authorization: HeaderValue,
}

/// Address of one pod.
enum Endpoint {
    Url(Url),
    Pod { host: String, pod: WebhookPod },
}

/// A request to the content service. Every attempt sends the same request.
struct ContentRequest {
    method: Method,
    path: String,
    body: Bytes,
}

/// A response, and the connection through which its content arrives.
struct ContentResponse {
    response: Response,
    connection: Option<PortForward>,
}

/// Reason why a pod of bundle-webhook did not respond.
enum AttemptError {
    /// This pod cannot respond now. Another pod or a later attempt can succeed.
    Unavailable(Failure),
    /// The connection failed.
    Unreachable(Failure),
}

impl ContentService {
    /// Finds the content service as the user of the kubeconfig, with `settings`. The requests to
    /// the content service have the token of `caller`, which can be a ServiceAccount.
    pub(crate) async fn find(
        settings: &KubeSettings,
        service: &ContentServiceSettings,
        caller: &KubeSettings,
    ) -> Outcome<Self> {
        let authorization = caller::token(caller).await?;
        let cluster = Cluster::connect(settings).await?;
        let address = ContentAddress::find(&cluster, service).await?;
        Ok(Self {
            cluster,
            address,
            authorization,
        })
    }

    /// Uploads a gzipped tar as the content of `bundle`.
    pub(crate) async fn upload(&self, bundle: &KubeName, archive: Bytes) -> Outcome<UploadOutcome> {
        let request = ContentRequest {
            method: Method::PUT,
            path: format!("/uploads/{bundle}.tgz"),
            body: archive,
        };
        let answer = self.send(&request).await?;
        match answer.response.status() {
            StatusCode::CREATED => Ok(UploadOutcome::Stored),
            StatusCode::NO_CONTENT => Ok(UploadOutcome::Identical),
            status => {
                let text = message(answer.response).await;
                Err(rejection(status, &text, "uploaded").into())
            }
        }
    }

    /// Writes the content of `bundle`, a gzipped tar, to `file`. Fails if the digest of the content
    /// differs from the digest in the response of the pod.
    pub(crate) async fn download(&self, bundle: &KubeName, file: File) -> Outcome<Descriptor> {
        let request = ContentRequest {
            method: Method::GET,
            path: format!("/bundles/{bundle}.tgz"),
            body: Bytes::new(),
        };
        let ContentResponse {
            response,
            connection,
        } = self.send(&request).await?;
        let status = response.status();
        if status != StatusCode::OK {
            let text = message(response).await;
            return Err(rejection(status, &text, "downloaded").into());
        }
        let expected = entity_digest(&response);
        let stored = archive_file::store(body_chunks(response), file).await;
        drop(connection);
        let (_, stored) = stored.map_err(|error| match error {
            StoreError::Stream(failure) => failure,
            StoreError::Storage(error) => Failure::caused(
                Finding::error(
                    codes::usage::FILE_UNWRITABLE,
                    "cannot write the content to a temporary file",
                ),
                &error,
            ),
            StoreError::Stopped => Finding::error(
                codes::usage::NO_RESOURCES,
                "the download stopped unexpectedly",
            )
            .into(),
        })?;
        let found = stored.descriptor;
        if expected.as_ref() != Some(&found.digest) {
            let expected = expected.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
            return Err(Finding::error(
                codes::registry::DIGEST_MISMATCH,
                format!(
                    "the content of Bundle {bundle} has digest {}, and bundle-webhook sent {expected}",
                    found.digest
                ),
            )
            .hint("the content was changed during the transfer; nothing was written")
            .into());
        }
        Ok(found)
    }

    /// Sends a request to the pods, one after the other, and retries while the status of the
    /// response is 429 or 503. Fails after [`SEARCH_TIMEOUT`], or after [`MAX_FAILURES`] rounds
    /// that end with a failed connection.
    async fn send(&self, request: &ContentRequest) -> Outcome<ContentResponse> {
        let deadline = Instant::now() + SEARCH_TIMEOUT;
        let mut failures = 0;
        loop {
            let mut last = None;
            for endpoint in self.endpoints().await? {
                match self.attempt(endpoint, request).await? {
                    Ok(answer) => return Ok(answer),
                    Err(error) => last = Some(error),
                }
            }
            let (failure, is_final) = match last {
                Some(AttemptError::Unavailable(failure)) => (failure, false),
                Some(AttemptError::Unreachable(failure)) => {
                    failures += 1;
                    (failure, failures >= MAX_FAILURES)
                }
                None => return Err(unreachable_error("bundle-webhook has no pods").into()),
            };
            if is_final || Instant::now() + delays::CONTENT > deadline {
                return Err(failure);
            }
            sleep(delays::CONTENT).await;
        }
    }

    async fn endpoints(&self) -> Outcome<Vec<Endpoint>> {
        match &self.address.route {
            Route::Direct(url) => Ok(vec![Endpoint::Url(url.clone())]),
            Route::PortForward(service) => {
                let pods = service.pods(&self.cluster).await?;
                let endpoint = |pod| Endpoint::Pod {
                    host: service.host(),
                    pod,
                };
                Ok(pods.into_iter().map(endpoint).collect())
            }
        }
    }

    async fn attempt(
        &self,
        endpoint: Endpoint,
        request: &ContentRequest,
    ) -> Outcome<Result<ContentResponse, AttemptError>> {
        let mut builder = Client::builder()
            .user_agent(concat!("kubectl-bundle/", env!("CARGO_PKG_VERSION")))
            .https_only(true)
            .redirect(redirect::Policy::none())
            .connect_timeout(RESPONSE_TIMEOUT)
            .tls_certs_only(self.authorities()?);
        let (base, connection) = match endpoint {
            Endpoint::Url(url) => {
                if is_loopback(&url) {
                    builder = builder.no_proxy();
                }
                (url, None)
            }
            Endpoint::Pod { host, pod } => {
                let opened = match PortForward::open(&self.cluster, &pod.url, pod.port).await {
                    Ok(opened) => opened,
                    Err(Failure::Server(status)) if [401, 403].contains(&status.code) => {
                        return Err(Failure::Server(status));
                    }
                    // The pod may have been deleted. Such a pod counts as unreachable.
                    Err(failure) => return Ok(Err(AttemptError::Unreachable(failure))),
                };
                let address = opened.address;
                builder = builder.no_proxy().resolve(&host, address);
                let url = format!("https://{host}:{}", address.port());
                (parsed(&url)?, Some(opened))
            }
        };
        let name = base.as_str().trim_end_matches('/').to_owned();
        let client = builder.build().map_err(|error| invalid_authority(&error))?;
        let sent = client
            .request(
                request.method.clone(),
                parsed(&format!("{name}{}", request.path))?,
            )
            .header(header::AUTHORIZATION, self.authorization.clone())
            .body(request.body.clone())
            .send();
        let limit = RESPONSE_TIMEOUT + Duration::from_secs(request.body.len() as u64 / MIN_RATE);
        let name = match &connection {
            Some(_) => "bundle-webhook".to_owned(),
            None => format!("bundle-webhook at {name}"),
        };
        let response = match timeout(limit, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let failure = unreachable(&name, connection, &error.without_url()).await;
                return Ok(Err(AttemptError::Unreachable(failure)));
            }
            Err(_) => {
                let finding = unreachable_error(format!("{name} did not respond within {limit:?}"));
                return Ok(Err(AttemptError::Unreachable(finding.into())));
            }
        };
        let status = response.status();
        let is_busy = status == StatusCode::SERVICE_UNAVAILABLE;
        if is_busy || status == StatusCode::TOO_MANY_REQUESTS {
            let text = message(response).await;
            let finding = unreachable_error(format!("{name} cannot respond now: {text}"));
            return Ok(Err(AttemptError::Unavailable(finding.into())));
        }
        Ok(Ok(ContentResponse {
            response,
            connection,
        }))
    }

    fn authorities(&self) -> Outcome<Vec<Certificate>> {
        Certificate::from_pem_bundle(&self.address.authorities)
            .map_err(|error| invalid_authority(&error))
    }
}

fn invalid_authority(error: &reqwest::Error) -> Failure {
    let finding = Finding::error(
        codes::usage::FILE_UNREADABLE,
        "the certificate authority of bundle-webhook is invalid",
    );
    Failure::caused(
        finding.hint("pass certificates in PEM format with --content-ca"),
        error,
    )
}

fn unreachable_error(message: impl Into<String>) -> Finding {
    Finding::error(codes::cluster::CONTENT_UNREACHABLE, message)
        .hint("try again; `kubectl bundle doctor` checks bundle-webhook")
}

/// Returns the failure of a connection. For a port-forward, the error from the node is used,
/// because the error contains the cause.
async fn unreachable(
    name: &str,
    connection: Option<PortForward>,
    error: &reqwest::Error,
) -> Failure {
    let finding = unreachable_error(format!("{name} is unreachable"));
    let ended = match connection {
        Some(connection) => connection.failure().await,
        None => None,
    };
    match ended {
        Some(ended) => Failure::caused(finding, &ended),
        None => Failure::caused(finding, error),
    }
}

fn parsed(url: &str) -> Outcome<Url> {
    Url::parse(url).map_err(|error| {
        let finding =
            Finding::error(codes::usage::BAD_ARGUMENT, "invalid URL").at_field("--content-url");
        Failure::caused(finding, &error)
    })
}
