//! Log of requests. The level debug logs method, URL without secrets, status and duration. The
//! level trace also logs the headers, without credentials.

use std::time::Instant;

use reqwest::header::{AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION};
use reqwest::{Method, Request, Response};
use tracing::Level;
use url::Url;

use crate::clock::instant;
use crate::registry::RegistryErrorReason;

/// Query parameters whose values are logged. Values of other parameters are secret: they can be
/// signatures in URLs of an object store, or states of an upload that grant write access.
const LOGGED_PARAMETERS: [&str; 8] = [
    "artifactType",
    "digest",
    "from",
    "last",
    "mount",
    "n",
    "scope",
    "service",
];

/// A request in progress.
pub(in crate::registry) struct RequestLog {
    method: Method,
    url: String,
    begun: Instant,
}

impl RequestLog {
    /// Starts the log entry; `None` if the level is disabled.
    pub(in crate::registry) fn begin(request: &Request) -> Option<Self> {
        if !tracing::enabled!(Level::DEBUG) {
            return None;
        }
        let url = redacted_url(request.url());
        if tracing::enabled!(Level::TRACE) {
            let names = request.headers().iter().filter(|(name, value)| {
                !value.is_sensitive()
                    && ![AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name)
            });
            for (name, value) in names {
                tracing::trace!(url, header = %name, value = ?value);
            }
        }
        Some(Self {
            method: request.method().clone(),
            url,
            begun: instant(),
        })
    }

    /// Writes the log line.
    pub(in crate::registry) fn end(self, outcome: &Result<Response, RegistryErrorReason>) {
        let Self { method, url, begun } = self;
        let milliseconds = instant().duration_since(begun).as_millis();
        match outcome {
            Ok(response) => {
                tracing::debug!(%method, url, status = %response.status(), milliseconds, "request");
            }
            Err(reason) => {
                tracing::debug!(%method, url, error = %reason, milliseconds, "request");
            }
        }
    }
}

/// Returns the URL without user, password and the values of parameters that may be secret.
fn redacted_url(url: &Url) -> String {
    let mut shown = url.clone();
    // `set_username` and `set_password` succeed for URLs with a host.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown.set_fragment(None);
    shown.set_query(None);
    let pairs: Vec<String> = url
        .query_pairs()
        .map(|(name, value)| {
            let value = if LOGGED_PARAMETERS.contains(&name.as_ref()) {
                value.as_ref()
            } else {
                "…"
            };
            format!("{name}={value}")
        })
        .collect();
    if pairs.is_empty() {
        return shown.to_string();
    }
    let line: String = pairs
        .join("&")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    format!("{shown}?{line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_urls_have_no_secrets() {
        for (url, expected) in [
            (
                "https://registry.example.com/v2/web/manifests/1",
                "https://registry.example.com/v2/web/manifests/1",
            ),
            (
                "https://ana:hidden@registry.example.com/v2/?n=5#hidden",
                "https://registry.example.com/v2/?n=5",
            ),
            (
                "https://bucket.example.com/blob?X-Amz-Signature=hidden&_state=hidden",
                "https://bucket.example.com/blob?X-Amz-Signature=…&_state=…",
            ),
            (
                "https://auth.example.com/token?service=s&scope=repository%3Aweb%3Apull&token=hidden",
                "https://auth.example.com/token?service=s&scope=repository:web:pull&token=…",
            ),
        ] {
            assert_eq!(redacted_url(&url.parse().unwrap()), expected);
        }
    }
}
