//! Connection to an API server. The connection collects the warnings of the API server and limits
//! the time of each request.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle_cluster::connection::RetryAfter;
use bundle_core::diagnostic::{Finding, codes};
use kube::client::ClientBuilder;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use tower::util::MapResponseLayer;

use super::config::{KubeSettings, select_cluster};
use super::request_log::RequestLogLayer;
use crate::failure::{Failure, Outcome};

/// Maximum number of API server warnings that one command prints.
const MAX_WARNINGS: usize = 100;

/// A connected cluster.
pub(crate) struct Cluster {
    /// Client with the user's credentials.
    pub(crate) client: kube::Client,
    /// Description: server, context and file.
    pub(crate) name: String,
    request_timeout: Option<Duration>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    /// Reads the configuration and prepares a client. The first request connects.
    pub(crate) async fn connect(settings: &KubeSettings) -> Outcome<Self> {
        crate::system::tls::install();
        let chosen = select_cluster(settings).await?;
        let server = chosen.config.cluster_url.to_string();
        let name = format!("{} ({})", server.trim_end_matches('/'), chosen.origin);
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let collect = MapResponseLayer::new(move |response: http::Response<_>| {
            for text in bundle_cluster::warnings(response.headers()) {
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                if seen.len() < MAX_WARNINGS && !seen.contains(&text) {
                    seen.push(text);
                }
            }
            response
        });
        let client = ClientBuilder::try_from(chosen.config)
            .map_err(|error| {
                Failure::caused(
                    Finding::error(
                        codes::cluster::BAD_KUBECONFIG,
                        format!("cannot create a client for {name}"),
                    )
                    .hint("check the server address, certificates and user in the kubeconfig"),
                    &error,
                )
            })?
            // The log layer is inside the retry layer, so that each attempt is logged.
            .with_layer(&RequestLogLayer::new(&server))
            // The retry layer requires a service that implements `Clone`. kube's own stack does not
            // implement `Clone`.
            .with_layer(&BufferLayer::new(64))
            .with_layer(&RetryLayer::new(RetryAfter::default()))
            .with_layer(&collect)
            .build();
        Ok(Self {
            client,
            name,
            request_timeout: settings.request_timeout,
            warnings,
        })
    }

    /// Waits for one request, at most for `--request-timeout`. Converts its error to a [`Failure`].
    pub(crate) async fn send<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Outcome<T> {
        let answer = match self.request_timeout {
            None => request.await,
            Some(limit) => match tokio::time::timeout(limit, request).await {
                Ok(answer) => answer,
                Err(_) => {
                    return Err(self
                        .unreachable(&format!("did not respond within {limit:?}"))
                        .into());
                }
            },
        };
        answer.map_err(|error| self.explain(error))
    }

    /// Returns the API server's warnings since the last call, without duplicates.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn unreachable(&self, how: &str) -> Finding {
        Finding::error(
            codes::cluster::UNREACHABLE,
            format!("the API server {} {how}", self.name),
        )
        .hint("check that the cluster is running and that the kubeconfig refers to it; --context selects another context")
    }

    fn explain(&self, error: kube::Error) -> Failure {
        match error {
            // For an unknown path, the API server responds with `404 page not found` instead of a
            // `Status`.
            kube::Error::Api(status)
                if status.code == 404 && status.message.starts_with("404 page not found") =>
            {
                Finding::error(
                    codes::cluster::NO_API,
                    format!(
                        "the API server {} does not serve {}",
                        self.name,
                        bundle_api::names::API_VERSION
                    ),
                )
                .hint("install bundle-webhook with `kubectl bundle install`, or select another cluster with --context")
                .into()
            }
            kube::Error::Api(status) => Failure::Server(status),
            kube::Error::Service(source) => {
                Failure::caused(self.unreachable("is unreachable"), source.as_ref())
            }
            kube::Error::HyperError(source) => {
                Failure::caused(self.unreachable("is unreachable"), &source)
            }
            kube::Error::Auth(source) => Failure::caused(
                Finding::error(
                    codes::cluster::BAD_KUBECONFIG,
                    format!("no credentials for {}", self.name),
                )
                .hint("log in again, or check the user in the kubeconfig"),
                &source,
            ),
            other => Failure::caused(
                Finding::error(
                    codes::cluster::BAD_ANSWER,
                    format!("the API server {} returned an invalid response", self.name),
                )
                .hint("check that the server in the kubeconfig is a Kubernetes API server"),
                &other,
            ),
        }
    }
}
