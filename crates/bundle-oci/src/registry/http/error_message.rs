//! Error messages of registries.

use reqwest::Response;
use serde::Deserialize;

use crate::limits::ERROR_BYTES;
use crate::registry::http::client::HttpClient;
use crate::registry::memory::Unlimited;

#[derive(Deserialize)]
struct ErrorBody {
    errors: Vec<ErrorEntry>,
}

#[derive(Deserialize)]
struct ErrorEntry {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// Returns the error message of the response with a separator before it: `: MESSAGE`. Returns an
/// empty text if the response has no message that can be shown.
pub(in crate::registry) async fn detail_of(http: &HttpClient, response: Response) -> String {
    let Ok(body) = http
        .body(response, ERROR_BYTES, "the error", &Unlimited)
        .await
    else {
        return String::new();
    };
    let Ok(parsed_body) = serde_json::from_slice::<ErrorBody>(&body) else {
        return String::new();
    };
    let Some(first) = parsed_body.errors.into_iter().next() else {
        return String::new();
    };
    let text = if first.message.is_empty() {
        first.code
    } else {
        first.message
    };
    let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
    if text.is_empty() {
        text
    } else {
        format!(": {text}")
    }
}
