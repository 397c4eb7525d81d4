//! Downloads files of a TUF repository: limits on time and size, no redirects.

use std::fmt;
use std::sync::Arc;

use reqwest::StatusCode;
use sigstore_tuf::transport::FetchFuture;
use sigstore_tuf::{Error, Repository};
use url::Url;

use crate::sigstore::http::HttpClients;

/// A repository at a URL.
pub(super) struct Mirror {
    http: Arc<HttpClients>,
    base: Url,
}

/// Reason why a file was not downloaded.
#[derive(Debug)]
pub(super) enum FetchError {
    /// The mirror did not respond in time, or could not be reached.
    Unreachable(reqwest::Error),
    /// The mirror returned an error status.
    Status(StatusCode),
    /// The file exceeds its size limit.
    TooLarge {
        /// Limit in bytes.
        limit: u64,
    },
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(error) if error.is_timeout() => f.write_str("no response in time"),
            Self::Unreachable(error) => error.fmt(f),
            Self::Status(status) => write!(f, "status {status}"),
            Self::TooLarge { limit } => write!(f, "more than {limit} bytes"),
        }
    }
}

impl std::error::Error for FetchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(error) => error.source(),
            _ => None,
        }
    }
}

impl Mirror {
    /// Returns the mirror at `base`, which ends with a slash.
    pub(super) fn new(http: Arc<HttpClients>, base: Url) -> Self {
        Self { http, base }
    }

    async fn get(&self, path: &str, limit: u64) -> Result<Option<Vec<u8>>, Error> {
        let url = self
            .base
            .join(path)
            .map_err(|error| Error::transport_with_source(format!("{path}: invalid URL"), error))?;
        self.bounded(url, limit)
            .await
            .map_err(|why| Error::transport_with_source(path.to_owned(), why))
    }

    async fn bounded(&self, url: Url, limit: u64) -> Result<Option<Vec<u8>>, FetchError> {
        let silent = |error: reqwest::Error| FetchError::Unreachable(error.without_url());
        let client = self.http.client(&url);
        let mut response = client.get(url).send().await.map_err(silent)?;
        match response.status() {
            // Object stores return 403 for missing files.
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => return Ok(None),
            status if !status.is_success() => return Err(FetchError::Status(status)),
            _ => {}
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(silent)? {
            if (body.len() + chunk.len()) as u64 > limit {
                return Err(FetchError::TooLarge { limit });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body))
    }
}

impl Repository for Mirror {
    fn fetch_metadata<'a>(&'a self, name: &'a str, max_length: u64) -> FetchFuture<'a> {
        Box::pin(self.get(name, max_length))
    }

    fn fetch_target<'a>(&'a self, path: &'a str, max_length: u64) -> FetchFuture<'a> {
        Box::pin(async move { self.get(&format!("targets/{path}"), max_length).await })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Returns the error for a mirror that sends `begin` and then single bytes. The test clock
    /// advances while all tasks wait.
    fn from_a_mirror_that_begins(begin: &'static str) -> String {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let error = runtime.block_on(async {
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let base = format!("http://{}/", listener.local_addr().unwrap());
            tokio::spawn(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                let _ = stream.read(&mut [0; 4096]).await.unwrap();
                stream.write_all(begin.as_bytes()).await.unwrap();
                loop {
                    tokio::time::sleep(Duration::from_secs(10)).await;
                    if !begin.is_empty() && stream.write_all(b" ").await.is_err() {
                        return;
                    }
                }
            });
            let http = Arc::new(HttpClients::new(&[]).unwrap());
            let mirror = Mirror::new(http, base.parse().unwrap());
            mirror.get("timestamp.json", 16_384).await.unwrap_err()
        });
        let Error::Transport {
            source: Some(source),
            ..
        } = error
        else {
            panic!("{error}");
        };
        let mut text = source.to_string();
        let mut next = source.source();
        while let Some(cause) = next {
            text = format!("{text}: {cause}");
            next = cause.source();
        }
        text
    }

    #[test]
    fn stops_at_a_silent_or_slow_mirror() {
        for begin in ["", "HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n"] {
            let message = from_a_mirror_that_begins(begin);
            assert!(
                message.starts_with("no response in time"),
                "{begin:?}: {message}"
            );
        }
    }
}
