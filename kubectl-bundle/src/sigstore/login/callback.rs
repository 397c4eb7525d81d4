//! Local HTTP server for the redirect from the issuer. Any local process can connect, so only a
//! request with the right `state` parameter is accepted.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use url::Url;

use super::{ErrorResponse, rejected};
use crate::failure::{Failure, Outcome};
use crate::sigstore::secret::Secret;
use crate::system::delays;

/// Timeout of the login.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// Timeout of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of concurrent connections. Browsers open additional connections.
const MAX_CONNECTIONS: usize = 16;
/// Maximum size of the request line and the headers, in bytes.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
const PATH: &str = "/auth/callback";

/// Listeners on loopback, with the same port on IPv4 and IPv6.
pub(super) struct Callback {
    listeners: Vec<TcpListener>,
    port: u16,
}

/// Expected values of the redirect.
struct ExpectedRedirect {
    port: u16,
    state: String,
    issuer: String,
}

/// Result of the redirect: the code, or the error of the issuer.
type RedirectResult = Result<Secret, Finding>;

impl Callback {
    pub(super) async fn listen() -> Outcome<Self> {
        let none = |error: std::io::Error| {
            Failure::caused(
                Finding::error(
                    codes::usage::NO_RESOURCES,
                    "cannot listen on a loopback port for the browser",
                )
                .hint("use --fulcio-auth-flow device, which needs no port"),
                &error,
            )
        };
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .map_err(none)?;
        let port = first.local_addr().map_err(none)?.port();
        let mut listeners = vec![first];
        // `localhost` may also resolve to this IPv6 address, so no other process may listen on it.
        // Without IPv6, binding fails, and `localhost` does not resolve to the address.
        listeners.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, port)).await);
        Ok(Self { listeners, port })
    }

    /// Returns the redirect URI. Its host is `localhost`, because issuers have registered this
    /// host.
    pub(super) fn address(&self) -> String {
        format!("http://localhost:{}{PATH}", self.port)
    }

    /// Waits for the redirect and returns its code.
    pub(super) async fn code(self, state: String, issuer: &str) -> Outcome<Secret> {
        let expected = Arc::new(ExpectedRedirect {
            port: self.port,
            state,
            issuer: issuer.to_owned(),
        });
        let (sender, mut received) = mpsc::channel(1);
        // The tasks end when `acceptors` is dropped.
        let mut acceptors = JoinSet::new();
        for listener in self.listeners {
            acceptors.spawn(accept(listener, Arc::clone(&expected), sender.clone()));
        }
        match timeout(LOGIN_TIMEOUT, received.recv()).await {
            Ok(Some(verdict)) => Ok(verdict?),
            Ok(None) | Err(_) => {
                Err(rejected("the login was not completed within 5 minutes").into())
            }
        }
    }
}

async fn accept(
    listener: TcpListener,
    expected: Arc<ExpectedRedirect>,
    sender: mpsc::Sender<RedirectResult>,
) {
    let mut visitors = JoinSet::new();
    loop {
        while visitors.try_join_next().is_some() {}
        if visitors.len() >= MAX_CONNECTIONS {
            visitors.join_next().await;
        }
        let Ok((stream, _)) = listener.accept().await else {
            // The process may have too many open files at the moment, so the next attempt is
            // delayed.
            tokio::time::sleep(delays::ACCEPT).await;
            continue;
        };
        let (expected, sender) = (Arc::clone(&expected), sender.clone());
        visitors.spawn(async move {
            if let Ok(Some(verdict)) =
                timeout(CONNECTION_TIMEOUT, handle_request(stream, &expected)).await
            {
                // Only the first result is used, so an error of the channel is ignored.
                let _ = sender.try_send(verdict);
            }
        });
    }
}

/// Handles one request, and returns its result. Returns `None` if the request is not the expected
/// redirect.
async fn handle_request(
    mut stream: TcpStream,
    expected: &ExpectedRedirect,
) -> Option<RedirectResult> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST_BYTES || stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
    let request = String::from_utf8(request).ok()?;
    let verdict = expected.redirect_result(&request);
    let (status, text) = match &verdict {
        Some(Ok(_)) => ("200 OK", "You are logged in. This page can be closed."),
        Some(Err(_)) => ("200 OK", "You are not logged in. This page can be closed."),
        None => ("400 Bad Request", "Unexpected request."),
    };
    let page =
        format!("<!doctype html><meta charset=utf-8><title>kubectl bundle</title><p>{text}\n");
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncontent-security-policy: default-src 'none'\r\nreferrer-policy: no-referrer\r\ncache-control: no-store\r\nconnection: close\r\n\r\n{page}",
        page.len()
    );
    // An error is ignored: a browser that closed the connection has already sent its code.
    let _ = stream.write_all(answer.as_bytes()).await;
    let _ = stream.shutdown().await;
    verdict
}

impl ExpectedRedirect {
    /// Returns the code or error in the expected redirect. Returns `None` for every other request.
    fn redirect_result(&self, request: &str) -> Option<RedirectResult> {
        let mut lines = request.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if method != "GET" || !version.starts_with("HTTP/1.") || !target.starts_with('/') {
            return None;
        }
        // Only host names of this machine are accepted in the header `Host`. Otherwise the host
        // name of a web page could resolve to this address, and the page could send requests
        // through the browser (DNS rebinding).
        let mut hosts = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host")
                .then(|| value.trim().to_ascii_lowercase())
        });
        let own_hosts =
            ["localhost", "127.0.0.1", "[::1]"].map(|host| format!("{host}:{}", self.port));
        let host = hosts.next()?;
        if hosts.next().is_some() || !own_hosts.contains(&host) {
            return None;
        }
        let url = Url::parse(&format!("http://{host}{target}")).ok()?;
        if url.path() != PATH {
            return None;
        }
        let once = |wanted: &str| -> Option<Option<String>> {
            let mut found = url.query_pairs().filter(|(name, _)| name == wanted);
            let first = found.next().map(|(_, value)| value.into_owned());
            // A repeated parameter is ambiguous, so the request is not accepted.
            found.next().is_none().then_some(first)
        };
        if once("state")?.as_deref() != Some(&self.state) {
            return None;
        }
        if once("iss")?.is_some_and(|issuer| issuer != self.issuer) {
            return None;
        }
        match (once("code")?, once("error")?) {
            (Some(code), None) if !code.is_empty() => Some(Ok(code.into())),
            (None, Some(error)) => {
                let refusal = ErrorResponse {
                    error,
                    error_description: once("error_description")?.unwrap_or_default(),
                };
                Some(Err(rejected(&refusal.words())))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expected() -> ExpectedRedirect {
        ExpectedRedirect {
            port: 4000,
            state: "our-state".to_owned(),
            issuer: "https://issuer.example.com".to_owned(),
        }
    }

    fn asked(target: &str) -> Option<RedirectResult> {
        let request =
            format!("GET {target} HTTP/1.1\r\nAccept: */*\r\nhost: localhost:4000\r\n\r\n");
        expected().redirect_result(&request)
    }

    #[test]
    fn accepts_a_redirect_with_the_right_state() {
        let code = |target| asked(target).unwrap().unwrap().expose().to_owned();
        assert_eq!(code("/auth/callback?code=a%20b&state=our-state"), "a b");
        assert_eq!(
            code("/auth/callback?state=our-state&iss=https%3A%2F%2Fissuer.example.com&code=c"),
            "c"
        );
        let denied =
            asked("/auth/callback?error=access_denied&error_description=no%1b&state=our-state");
        let message = denied.unwrap().unwrap_err().message;
        assert_eq!(message, "the login failed: access_denied: no\\u{1b}");
    }

    #[test]
    fn rejects_every_other_request() {
        for target in [
            "/auth/callback?code=c",
            "/auth/callback?code=c&state=",
            "/auth/callback?code=c&state=our-state2",
            "/auth/callback?code=c&state=OUR-STATE",
            "/auth/callback?code=c&state=our-state&state=our-state",
            "/auth/callback?code=c&code=d&state=our-state",
            "/auth/callback?code=&state=our-state",
            "/auth/callback?state=our-state",
            "/auth/callback?code=c&error=e&state=our-state",
            "/auth/callback?code=c&state=our-state&iss=https%3A%2F%2Fevil.example.com",
            "/auth/callback/?code=c&state=our-state",
            "/?code=c&state=our-state",
            "/favicon.ico",
            "http://localhost:4000/auth/callback?code=c&state=our-state",
        ] {
            assert!(asked(target).is_none(), "{target}");
        }
        let line = "/auth/callback?code=c&state=our-state";
        for request in [
            format!("POST {line} HTTP/1.1\r\nhost: localhost:4000\r\n\r\n"),
            format!("GET {line} HTTP/2.0\r\nhost: localhost:4000\r\n\r\n"),
            format!("GET {line} HTTP/1.1\r\n\r\n"),
            format!("GET {line} HTTP/1.1\r\nhost: evil.example.com\r\n\r\n"),
            format!("GET {line} HTTP/1.1\r\nhost: localhost:4001\r\n\r\n"),
            format!("GET {line} HTTP/1.1\r\nhost: localhost:4000\r\nhost: a\r\n\r\n"),
            "\r\n\r\n".to_owned(),
            "GET\r\n\r\n".to_owned(),
        ] {
            assert!(expected().redirect_result(&request).is_none(), "{request}");
        }
    }
}
