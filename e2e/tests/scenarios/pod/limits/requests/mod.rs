//! Memory and time of the pod that a client can use with unfinished requests and with reviews.

mod bursts;
mod client;
mod documents;
mod floods;
mod responses;
mod reviews;
mod streams;

use super::*;

/// Image reference with a digest. Without a policy, its review reads no registry.
const PINNED: &str = "registry.example.com/a@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Checks that the webhook responds to the review of a Bundle. Panics if the error of the API
/// server does not come from the webhook.
async fn assert_reviewed(client: &Client, name: &str) {
    let (status, message) = create_dry(client, "bundles", &bundle(name, PINNED)).await;
    // The object is admitted, or rejected with a diagnostic code.
    assert!(
        status == 201 || message.contains("BUNDLE-"),
        "{status}: {message}"
    );
}
