//! One connection to an API server, with the warnings it sends and a limit on each request.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle_cluster::connection::RetryAfter;
use bundle_core::diagnostic::{Finding, codes};
use kube::client::ClientBuilder;
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;
use tower::util::MapResponseLayer;

use super::config::{KubeSettings, choose};
use super::request_log::RequestLogLayer;
use crate::failure::{Failure, Outcome};

/// A cluster that can be asked.
pub(crate) struct Cluster {
    /// The client, as the person at the keyboard.
    pub(crate) client: kube::Client,
    /// How a person would name it: server, context and file.
    pub(crate) name: String,
    request_timeout: Option<Duration>,
    warnings: Arc<Mutex<Vec<String>>>,
}

impl Cluster {
    /// Reads the configuration and prepares a client; the first request connects.
    pub(crate) async fn connect(settings: &KubeSettings) -> Outcome<Self> {
        crate::tls::install();
        let chosen = choose(settings).await?;
        let server = chosen.config.cluster_url.to_string();
        let name = format!("{} ({})", server.trim_end_matches('/'), chosen.origin);
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&warnings);
        let collect = MapResponseLayer::new(move |response: http::Response<_>| {
            for text in bundle_cluster::warnings(response.headers()) {
                let mut seen = sink.lock().unwrap_or_else(PoisonError::into_inner);
                if !seen.contains(&text) {
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
                        format!("cannot prepare a connection to {name}"),
                    )
                    .hint("check the server address, certificates and user in the kubeconfig"),
                    &error,
                )
            })?
            // Next to the connection: each attempt is a line.
            .with_layer(&RequestLogLayer::new(&server))
            // What is to be repeated must be cloned, and kube's own stack cannot be.
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

    /// Waits for one request, at most as long as `--request-timeout` says, and words what went wrong.
    pub(crate) async fn ask<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Outcome<T> {
        let answer = match self.request_timeout {
            None => request.await,
            Some(limit) => match tokio::time::timeout(limit, request).await {
                Ok(answer) => answer,
                Err(_) => {
                    return Err(self
                        .unreachable(&format!("did not answer within {limit:?}"))
                        .into());
                }
            },
        };
        answer.map_err(|error| self.explain(error))
    }

    /// What the API server wanted to have said, each once, since the last time.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut *self.warnings.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn unreachable(&self, how: &str) -> Finding {
        Finding::error(
            codes::cluster::UNREACHABLE,
            format!("the API server {} {how}", self.name),
        )
        .hint("check that the cluster runs and that the kubeconfig names it; --context picks another one")
    }

    fn explain(&self, error: kube::Error) -> Failure {
        match error {
            // The body of a path that no API is behind is plain text.
            kube::Error::Api(status)
                if status.code == 404 && status.message.starts_with("404 page not found") =>
            {
                Finding::error(
                    codes::cluster::NO_API,
                    format!(
                        "the API server {} does not know {}",
                        self.name,
                        bundle_api::names::API_VERSION
                    ),
                )
                .hint("install bundle-webhook with its CRDs first: kubectl apply -f crds/")
                .into()
            }
            kube::Error::Api(status) => Failure::Server(status),
            kube::Error::Service(source) => {
                Failure::caused(self.unreachable("does not answer"), source.as_ref())
            }
            kube::Error::HyperError(source) => {
                Failure::caused(self.unreachable("does not answer"), &source)
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
                    format!("the API server {} answered what cannot be read", self.name),
                )
                .hint("is this address really a Kubernetes API server?"),
                &other,
            ),
        }
    }
}
