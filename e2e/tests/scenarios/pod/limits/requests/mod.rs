//! Memory and time that a client can take from the pod with unfinished requests and with reviews.

mod bursts;
mod client;
mod documents;
mod floods;
mod responses;
mod reviews;
mod streams;

use super::*;

/// An image whose review reads no registry: by digest, and without a policy.
const PINNED: &str = "registry.example.com/a@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Checks that the webhook answers the review of a Bundle, with all other errors of the API server
/// excluded.
async fn assert_reviewed(client: &Client, name: &str) {
    let (status, message) = create_dry(client, "bundles", &bundle(name, PINNED)).await;
    // The object is admitted, or rejected with a diagnostic code.
    assert!(
        status == 201 || message.contains("BUNDLE-"),
        "{status}: {message}"
    );
}
