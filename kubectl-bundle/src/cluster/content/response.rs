//! Responses of the content service: errors, the digest of a download, and the chunks of its body.

use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bundle_oci::Limits;
use bytes::Bytes;
use futures::{Stream, stream};
use http::{StatusCode, header};
use reqwest::Response;
use tokio::time::timeout;

use super::unreachable_error;
use crate::failure::Failure;

/// Maximum time between two chunks of a download. After this time, the download fails.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of bytes of an error response that are read.
const MAX_MESSAGE: usize = 4 << 10;

/// Returns the finding for an error response that is not retried. `done` is the verb in the
/// message: `uploaded` or `downloaded`.
pub(super) fn rejection(status: StatusCode, text: &str, done: &str) -> Finding {
    let hint = match status {
        StatusCode::UNAUTHORIZED => {
            "log in again, or act as a ServiceAccount with --as-service-account NAMESPACE/NAME"
        }
        StatusCode::FORBIDDEN => "ask an administrator for the permission that the message names",
        StatusCode::INSUFFICIENT_STORAGE => "delete Bundles that are no longer needed",
        _ => "see the conditions of the Bundle: kubectl describe bundle NAME",
    };
    let is_known = status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT;
    let code = if is_known {
        codes::cluster::CONTENT_REJECTED
    } else {
        codes::cluster::CONTENT_UNREACHABLE
    };
    let message = format!("the content was not {done}: {text} ({status})");
    Finding::error(code, message).hint(hint)
}

/// Returns the text of an error response on one line.
pub(super) async fn message(mut response: Response) -> String {
    let mut text = Vec::new();
    while text.len() < MAX_MESSAGE
        && let Ok(Ok(Some(chunk))) = timeout(CHUNK_TIMEOUT, response.chunk()).await
    {
        text.extend_from_slice(&chunk);
    }
    text.truncate(MAX_MESSAGE);
    let text = String::from_utf8_lossy(&text);
    let text = text.trim().chars();
    text.map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

/// Returns the digest in the `ETag`.
pub(super) fn entity_digest(response: &Response) -> Option<Digest> {
    let tag = response.headers().get(header::ETAG)?.to_str().ok()?;
    tag.trim_matches('"').parse().ok()
}

/// Returns the chunks of the body. Fails if the body exceeds the size limit for the content of a
/// bundle.
pub(super) fn body_chunks(response: Response) -> impl Stream<Item = Result<Bytes, Failure>> {
    // Compressed content is at most slightly larger than its tar.
    let most = Limits::default().total + (1 << 20);
    stream::try_unfold(
        (response, 0_u64),
        move |(mut response, received)| async move {
            let ended = |error: &dyn std::error::Error| {
                Failure::caused(unreachable_error("the download was interrupted"), error)
            };
            let piece = timeout(CHUNK_TIMEOUT, response.chunk()).await;
            let piece = piece.map_err(|error| ended(&error))?;
            let Some(piece) = piece.map_err(|error| ended(&error.without_url()))? else {
                return Ok(None);
            };
            let received = received + piece.len() as u64;
            if received > most {
                return Err(Finding::error(
                    codes::registry::TOO_LARGE,
                    format!("the content is larger than {} MiB", most >> 20),
                )
                .into());
            }
            Ok(Some((piece, (response, received))))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::rendered;

    const RECORDED: &str = include_str!("messages.txt");

    fn response(status: u16, etag: &str, body: &'static str) -> Response {
        let response = http::Response::builder().status(status);
        response
            .header(header::ETAG, etag)
            .body(body)
            .unwrap()
            .into()
    }

    #[test]
    fn messages_of_the_content_service_are_recorded() {
        let conflict = "bundle has already been unpacked, cannot change content of existing bundle";
        let forbidden =
            "ana must have permission update on /uploads/web.tgz: bind ClusterRole bundle-uploader";
        let failures = [
            unreachable_error("bundle-webhook is unreachable"),
            rejection(StatusCode::FORBIDDEN, forbidden, "uploaded"),
            rejection(StatusCode::CONFLICT, conflict, "uploaded"),
            rejection(
                StatusCode::UNAUTHORIZED,
                "a valid bearer token is required",
                "downloaded",
            ),
        ];
        let text: String = failures
            .into_iter()
            .map(|finding| rendered(&finding.into()))
            .collect();
        assert_eq!(text, RECORDED, "copy the left side to messages.txt");
    }

    #[test]
    fn only_errors_of_the_server_can_be_retried() {
        for (status, is_retried) in [
            (400, false),
            (404, false),
            (413, false),
            (408, true),
            (507, true),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let code = rejection(status, "", "uploaded").code;
            assert_eq!(
                code == codes::cluster::CONTENT_UNREACHABLE,
                is_retried,
                "{status}"
            );
        }
    }

    #[tokio::test]
    async fn message_of_an_error_is_one_bounded_line() {
        let text = message(response(409, "\"\"", "two\nlines\u{1b}[31m\n")).await;
        assert_eq!(text, "two lines [31m");
        let long: &'static str = String::leak("x".repeat(3 * MAX_MESSAGE));
        assert_eq!(
            message(response(500, "\"\"", long)).await.len(),
            MAX_MESSAGE
        );
    }

    #[test]
    fn digest_of_a_download_is_the_entity_tag() {
        let digest = Digest::of(b"archive");
        let tag = format!("\"{digest}\"");
        assert_eq!(entity_digest(&response(200, &tag, "")), Some(digest));
        assert_eq!(entity_digest(&response(200, "\"abc\"", "")), None);
    }
}
