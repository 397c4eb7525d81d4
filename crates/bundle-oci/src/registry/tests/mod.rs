mod authentication;
mod download;
mod hostile;
mod manifests;
mod referrers;
mod security;
mod signature_floods;
mod signatures;
mod upload;

use std::collections::BTreeMap;

use bundle_core::diagnostic::codes;
use bundle_core::format::Files;
use bundle_core::reference::{Digest, PinnedReference, Reference};
use bundle_testkit::{Fault, Registry, Settings};

use super::*;
use crate::limits::Limits;
use crate::pack::{PackedImage, image};

impl Client {
    /// Pulls the files of a bundle into memory.
    async fn pull_files(
        &self,
        pinned: &PinnedReference,
        limits: &Limits,
    ) -> Result<Files, RegistryError> {
        let (files, _) = self
            .pull_onto(pinned, limits, crate::unpack::InMemory::default())
            .await?;
        Ok(files)
    }
}

fn client() -> Client {
    with_logins(Logins::anonymous())
}

fn with_logins(logins: Logins) -> Client {
    Client::new(ClientOptions {
        logins,
        deadlines: Deadlines {
            stall: Duration::from_millis(300),
            pause: Duration::from_millis(1),
            ..Deadlines::default()
        },
        ..ClientOptions::default()
    })
    .unwrap()
}

fn ana(registry: &Registry, password: &str) -> Client {
    let login = Login::Password {
        user: "ana".to_owned(),
        password: password.to_owned(),
    };
    with_logins(Logins {
        explicit: [(registry.host(), login)].into(),
        ..Logins::default()
    })
}

fn files(text: &str) -> Files {
    Files::from([("manifests/a.yaml".to_owned(), text.as_bytes().to_vec())])
}

fn packed(text: &str) -> PackedImage {
    image(&files(text), BTreeMap::new()).unwrap()
}

async fn pushed(registry: &Registry) -> PinnedReference {
    let to = registry.reference("team/web:1.4.0").parse().unwrap();
    let push = client().push(&packed("a: 1\n"), &to, TagPolicy::Keep).await;
    push.unwrap().pinned
}

/// Returns the diagnostic as text, without the registry's port.
fn diagnostic_text(registry: &Registry, error: &RegistryError) -> String {
    let finding = error.finding();
    format!("{} {}", finding.code, finding.message).replace(&registry.host(), "HOST")
}

#[tokio::test]
async fn pushed_content_is_resolved_and_pulled() {
    let registry = Registry::without_faults().await.unwrap();
    let client = client();
    let to: Reference = registry.reference("team/web:1.4.0").parse().unwrap();
    let bundle = packed("a: 1\n");

    let first = client.push(&bundle, &to, TagPolicy::Keep).await.unwrap();
    assert!(first.new);
    let last = registry.lines().pop().unwrap();
    assert_eq!(last, "PUT /v2/team/web/manifests/1.4.0");

    assert_eq!(client.resolve(&to).await.unwrap(), bundle.digest);
    let read = client.manifest(&first.pinned).await.unwrap();
    assert_eq!(read, bundle.manifest);
    let limits = Limits::default();
    let pulled = client.pull_files(&first.pinned, &limits).await.unwrap();
    assert_eq!(pulled, files("a: 1\n"));
    let content = client.pull_content(&first.pinned, &read, &limits).await;
    assert_eq!(content.unwrap(), pulled);
}

#[tokio::test]
async fn second_push_changes_nothing_and_another_digest_under_the_tag_is_rejected() {
    let registry = Registry::without_faults().await.unwrap();
    let client = client();
    let to: Reference = registry.reference("team/web:1.4.0").parse().unwrap();
    client
        .push(&packed("a: 1\n"), &to, TagPolicy::Keep)
        .await
        .unwrap();

    let before = registry.lines().len();
    let again = client
        .push(&packed("a: 1\n"), &to, TagPolicy::Keep)
        .await
        .unwrap();
    assert!(!again.new);
    assert_eq!(
        registry.lines().len(),
        before + 1,
        "one question, no upload"
    );

    let other = client
        .push(&packed("a: 2\n"), &to, TagPolicy::Keep)
        .await
        .unwrap_err();
    assert_eq!(other.finding().code, codes::registry::TAG_TAKEN);
    assert_eq!(client.resolve(&to).await.unwrap(), packed("a: 1\n").digest);
    let moved = client
        .push(&packed("a: 2\n"), &to, TagPolicy::Move)
        .await
        .unwrap();
    assert!(moved.new);
    assert_eq!(client.resolve(&to).await.unwrap(), packed("a: 2\n").digest);

    let wrong = to.pin(Digest::of(b"x"));
    let error = client
        .push(&packed("a: 2\n"), wrong.reference(), TagPolicy::Keep)
        .await
        .unwrap_err();
    assert_eq!(error.finding().code, codes::registry::DIGEST_MISMATCH);
}

#[tokio::test]
async fn each_fault_has_its_own_error() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    let config = packed("a: 1\n").config.descriptor;
    for (fault, expected) in [
        (
            Fault::AlteredManifest,
            format!(
                "BUNDLE-REGISTRY-004 cannot pull HOST/team/web@{}: the registry returned content with another digest: expected {}, received ",
                pinned.digest(),
                pinned.digest()
            ),
        ),
        (
            Fault::LyingBlob,
            format!(
                "BUNDLE-REGISTRY-004 cannot pull HOST/team/web@{}: the registry returned content with another digest: expected {}",
                pinned.digest(),
                config.digest
            ),
        ),
        (
            Fault::TruncatedBlob,
            format!(
                "BUNDLE-REGISTRY-004 cannot pull HOST/team/web@{}: the registry returned content of another size: expected {} bytes",
                pinned.digest(),
                config.size
            ),
        ),
        (
            Fault::CutBlob,
            format!(
                "BUNDLE-REGISTRY-001 cannot pull HOST/team/web@{}: the connection to HOST was interrupted",
                pinned.digest()
            ),
        ),
        (
            Fault::StallingBlob,
            format!(
                "BUNDLE-REGISTRY-006 cannot pull HOST/team/web@{}: the registry stopped responding (300 ms)",
                pinned.digest()
            ),
        ),
        (
            Fault::NoResponse,
            format!(
                "BUNDLE-REGISTRY-006 cannot pull HOST/team/web@{}: the registry stopped responding (300 ms)",
                pinned.digest()
            ),
        ),
        (
            Fault::Html,
            format!(
                "BUNDLE-REGISTRY-007 cannot pull HOST/team/web@{}: the registry sent text/html, not an image manifest",
                pinned.digest()
            ),
        ),
        (
            Fault::HugeManifest,
            format!(
                "BUNDLE-REGISTRY-005 cannot pull HOST/team/web@{}: the manifest is larger than the limit of 4 MiB",
                pinned.digest()
            ),
        ),
        (
            Fault::Busy {
                status: 503,
                times: 99,
            },
            format!(
                "BUNDLE-REGISTRY-011 cannot pull HOST/team/web@{}: the registry is overloaded or failing (503: slow down)",
                pinned.digest()
            ),
        ),
    ] {
        registry.set_fault(Some(fault.clone()));
        let error = client()
            .pull_files(&pinned, &Limits::default())
            .await
            .unwrap_err();
        let text = diagnostic_text(&registry, &error);
        assert!(text.starts_with(&expected), "{fault:?}: {text}");
        assert!(error.finding().hint.is_some());
    }
}

#[tokio::test]
async fn detects_faults_within_a_layer_while_it_streams() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    registry.exempt_from_fault(&packed("a: 1\n").config.descriptor.digest);
    for (fault, code, why) in [
        (
            Fault::LyingBlob,
            codes::registry::DIGEST_MISMATCH,
            "does not match its digest",
        ),
        (
            Fault::TruncatedBlob,
            codes::registry::DIGEST_MISMATCH,
            "of another size",
        ),
        (
            Fault::CutBlob,
            codes::registry::UNREACHABLE,
            "was interrupted",
        ),
        (
            Fault::StallingBlob,
            codes::registry::STALLED,
            "stopped responding",
        ),
    ] {
        registry.set_fault(Some(fault.clone()));
        let error = client()
            .pull_files(&pinned, &Limits::default())
            .await
            .unwrap_err();
        assert_eq!(error.finding().code, code, "{fault:?}: {error}");
        assert!(error.to_string().contains(why), "{fault:?}: {error}");
    }
}

#[tokio::test]
async fn error_names_the_layer_with_another_digest() {
    let registry = Registry::without_faults().await.unwrap();
    let digest = registry.publish(
        "team/web",
        "1",
        b"not a tar at all, but long enough to have a second half",
    );
    let to: Reference = registry.reference("team/web:1").parse().unwrap();
    let error = client()
        .pull_files(&to.pin(digest), &Limits::default())
        .await
        .unwrap_err();
    assert_eq!(error.finding().code, codes::registry::MALFORMED);
    assert!(
        error.to_string().contains("the archive cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn retries_a_busy_registry_a_limited_number_of_times() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    for status in [429, 503] {
        registry.set_fault(Some(Fault::Busy { status, times: 3 }));
        client().manifest(&pinned).await.unwrap();
    }
}

#[tokio::test]
async fn deadline_limits_the_whole_call() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    registry.set_fault(Some(Fault::NoResponse));
    let client = client().with_deadline(Duration::from_millis(50));
    let error = client.signatures(&pinned).await.unwrap_err();
    assert!(
        matches!(error.reason, RegistryErrorReason::Stalled { after } if after == Duration::from_millis(50))
    );
    assert!(error.is_retryable());
}

#[tokio::test]
async fn missing_content_denied_access_and_unreachable_registry_differ() {
    let registry = Registry::without_faults().await.unwrap();
    let client = client();
    let missing: Reference = registry.reference("team/none:1").parse().unwrap();
    let error = client.resolve(&missing).await.unwrap_err();
    assert_eq!(
        diagnostic_text(&registry, &error),
        "BUNDLE-REGISTRY-002 cannot resolve HOST/team/none:1: not found in the registry"
    );
    // A port on which no process listens.
    let gone = {
        let registry = Registry::without_faults().await.unwrap();
        registry.host()
    };
    let down: Reference = format!("{gone}/team/web:1").parse().unwrap();
    let error = loop {
        match client.resolve(&down).await {
            Err(error) if matches!(error.reason, RegistryErrorReason::Unreachable { .. }) => {
                break error;
            }
            // The port may still be open: the task that listens on it ends only at its next poll.
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(error.finding().code, codes::registry::UNREACHABLE);
    assert!(error.to_string().contains("is unreachable"), "{error}");
}

#[tokio::test]
async fn error_for_an_index_names_it_as_one_and_explains_platforms() {
    let registry = Registry::without_faults().await.unwrap();
    let index = br#"{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}"#;
    registry.put_manifest("team/web", "1", crate::media::INDEX, index);
    let to: Reference = registry.reference("team/web:1").parse().unwrap();
    let error = client()
        .manifest(&to.pin(Digest::of(index)))
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("an index of several images"),
        "{error}"
    );
    assert!(error.is_about_content());
    let hint = error.finding().hint.unwrap();
    assert!(
        hint.contains("the digest of one image in the index"),
        "{hint}"
    );
    assert!(!hint.contains("proxy"), "{hint}");
}

#[test]
fn error_names_invalid_settings() {
    let error = Client::new(ClientOptions {
        ca_files: vec!["/nonexistent/ca.pem".into()],
        ..ClientOptions::default()
    })
    .unwrap_err();
    assert!(error.to_string().contains("/nonexistent/ca.pem"), "{error}");
}
