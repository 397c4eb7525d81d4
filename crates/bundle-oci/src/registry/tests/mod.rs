mod download;
mod manifests;
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
        given: [(registry.host(), login)].into(),
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
fn told(registry: &Registry, error: &RegistryError) -> String {
    let finding = error.finding();
    format!("{} {}", finding.code, finding.message).replace(&registry.host(), "HOST")
}

#[tokio::test]
async fn pushed_content_is_resolved_and_pulled() {
    let registry = Registry::honest().await.unwrap();
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
    let registry = Registry::honest().await.unwrap();
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
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    let config = packed("a: 1\n").config.descriptor;
    for (fault, expected) in [
        (
            Fault::LyingManifest,
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
            Fault::Silent,
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
        let text = told(&registry, &error);
        assert!(text.starts_with(&expected), "{fault:?}: {text}");
        assert!(error.finding().hint.is_some());
    }
}

#[tokio::test]
async fn detects_faults_within_a_layer_while_it_streams() {
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    registry.spare(&packed("a: 1\n").config.descriptor.digest);
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
    let registry = Registry::honest().await.unwrap();
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
        error
            .to_string()
            .contains("the layer's archive cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn retries_a_busy_registry_a_limited_number_of_times() {
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    for status in [429, 503] {
        registry.set_fault(Some(Fault::Busy { status, times: 3 }));
        client().manifest(&pinned).await.unwrap();
    }
}

#[tokio::test]
async fn deadline_limits_the_whole_call() {
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    registry.set_fault(Some(Fault::Silent));
    let client = client().with_deadline(Duration::from_millis(50));
    let error = client.signatures(&pinned).await.unwrap_err();
    assert!(
        matches!(error.reason, Reason::Stalled { after } if after == Duration::from_millis(50))
    );
    assert!(error.is_passing());
}

#[tokio::test]
async fn missing_content_denied_access_and_unreachable_registry_differ() {
    let registry = Registry::honest().await.unwrap();
    let client = client();
    let missing: Reference = registry.reference("team/none:1").parse().unwrap();
    let error = client.resolve(&missing).await.unwrap_err();
    assert_eq!(
        told(&registry, &error),
        "BUNDLE-REGISTRY-002 cannot resolve HOST/team/none:1: not found in the registry"
    );
    // A free port without a listener.
    let gone = {
        let registry = Registry::honest().await.unwrap();
        registry.host()
    };
    let down: Reference = format!("{gone}/team/web:1").parse().unwrap();
    let error = loop {
        match client.resolve(&down).await {
            Err(error) if matches!(error.reason, Reason::Unreachable { .. }) => break error,
            // The listening task ends at its next poll.
            _ => tokio::task::yield_now().await,
        }
    };
    assert_eq!(error.finding().code, codes::registry::UNREACHABLE);
    assert!(error.to_string().contains("is unreachable"), "{error}");
}

#[tokio::test]
async fn authenticates_with_passwords_and_tokens() {
    for token in [false, true] {
        let login = bundle_testkit::Login {
            user: "ana".into(),
            password: "s3cret".into(),
            token,
        };
        let settings = Settings {
            login: Some(login),
            ..Settings::default()
        };
        let registry = Registry::start(settings).await.unwrap();
        let to: Reference = registry.reference("team/web:1").parse().unwrap();
        let bundle = packed("a: 1\n");

        for (client, who, code) in [
            (client(), "without a login", codes::registry::DENIED),
            (
                ana(&registry, "wrong"),
                "as ana",
                codes::registry::LOGIN_REFUSED,
            ),
        ] {
            let error = client
                .push(&bundle, &to, TagPolicy::Keep)
                .await
                .unwrap_err();
            assert_eq!(error.finding().code, code, "{error}");
            assert!(error.to_string().contains(who), "{error}");
            let error = client
                .signatures(&to.pin(bundle.digest.clone()))
                .await
                .unwrap_err();
            assert_eq!(error.finding().code, code, "never an empty list");
        }
        let client = ana(&registry, "s3cret");
        let pinned = client
            .push(&bundle, &to, TagPolicy::Keep)
            .await
            .unwrap()
            .pinned;
        client
            .pull_files(&pinned, &Limits::default())
            .await
            .unwrap();
        let bought = registry
            .lines()
            .iter()
            .filter(|line| line.contains("/token"))
            .count();
        // Each rejected client requests one token for the push and four to look up signatures; then
        // one to write and one to read, which are cached.
        assert!(!token || bought <= 2 * 5 + 2, "{bought} tokens");
    }
}

#[tokio::test]
async fn credentials_are_not_sent_to_redirect_targets() {
    let elsewhere = Registry::honest().await.unwrap();
    let login = bundle_testkit::Login {
        user: "ana".into(),
        password: "s3cret".into(),
        token: false,
    };
    let registry = Registry::start(Settings {
        login: Some(login),
        ..Settings::default()
    })
    .await
    .unwrap();
    let to: Reference = registry.reference("team/web:1").parse().unwrap();
    let client = ana(&registry, "s3cret");
    let pinned = client
        .push(&packed("a: 1\n"), &to, TagPolicy::Keep)
        .await
        .unwrap()
        .pinned;
    let copy: Reference = elsewhere.reference("team/web:1").parse().unwrap();
    client
        .push(&packed("a: 1\n"), &copy, TagPolicy::Keep)
        .await
        .unwrap();

    let there = format!("http://{}/v2/team/web/blobs", elsewhere.host());
    registry.set_fault(Some(Fault::RedirectBlobs(there)));
    let before = elsewhere.seen().len();
    client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap();
    let followed = elsewhere.seen().split_off(before);
    assert_eq!(followed.len(), 2);
    assert!(followed.iter().all(|seen| seen.authorization.is_none()));

    registry.set_fault(Some(Fault::RedirectBlobs("ftp://files.example.com".into())));
    let error = client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap_err();
    assert_eq!(error.finding().code, codes::registry::REDIRECT);
    let round = format!("http://{}/v2/team/web/blobs", registry.host());
    registry.set_fault(Some(Fault::RedirectBlobs(round)));
    let error = client
        .pull_files(&pinned, &Limits::default())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("after too many redirects"),
        "{error}"
    );
}

#[tokio::test]
async fn reads_signatures_in_order_with_and_without_referrers_api() {
    for referrers_api in [true, false] {
        let registry = Registry::start(Settings {
            referrers_api,
            page: 2,
            ..Settings::default()
        })
        .await
        .unwrap();
        let pinned = pushed(&registry).await;
        let client = client();
        assert_eq!(client.signatures(&pinned).await.unwrap(), []);
        let mut expected = Vec::new();
        for text in ["one", "two", "three", "four", "five"] {
            let stored = client.push_signature(&pinned, text.into()).await.unwrap();
            assert_eq!(stored.tag.is_none(), referrers_api);
            expected.push(text.as_bytes().to_vec());
        }
        // A repeated push changes nothing.
        client
            .push_signature(&pinned, b"one".to_vec())
            .await
            .unwrap();
        let read = client.signatures(&pinned).await.unwrap();
        let mut bytes: Vec<_> = read
            .iter()
            .map(|signature| signature.bytes.clone())
            .collect();
        bytes.sort();
        expected.sort();
        assert_eq!(bytes, expected);
        assert!(
            read.iter()
                .all(|signature| signature.artifact_type == crate::media::SIGSTORE_BUNDLE)
        );
    }
}

#[tokio::test]
async fn forbidden_list_is_an_error_and_not_an_empty_list() {
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    for (fault, code) in [
        (Fault::ReferrersApi(401), codes::registry::DENIED),
        (Fault::ReferrersApi(403), codes::registry::DENIED),
        (Fault::ReferrersApi(500), codes::registry::BUSY),
        (Fault::ReferrersApi(503), codes::registry::BUSY),
        (Fault::ReferrersApi(418), codes::registry::REFUSED),
        (Fault::ReferrersTag(401), codes::registry::DENIED),
        (Fault::ReferrersTag(403), codes::registry::DENIED),
        (Fault::ReferrersTag(502), codes::registry::BUSY),
        (Fault::Html, codes::registry::WRONG_MEDIA_TYPE),
        (Fault::Silent, codes::registry::STALLED),
        (
            Fault::Busy {
                status: 429,
                times: 99,
            },
            codes::registry::BUSY,
        ),
    ] {
        registry.set_fault(Some(fault.clone()));
        let error = client().signatures(&pinned).await.unwrap_err();
        assert_eq!(error.finding().code, code, "{fault:?}: {error}");
    }
    registry.set_fault(Some(Fault::ReferrersApi(404)));
    assert_eq!(client().signatures(&pinned).await.unwrap(), []);
}

#[tokio::test]
async fn rewrites_the_fallback_list_until_it_contains_the_own_entry() {
    let registry = Registry::start(Settings {
        referrers_api: false,
        ..Settings::default()
    })
    .await
    .unwrap();
    let pinned = pushed(&registry).await;
    registry.set_fault(Some(Fault::LostUpdates(1)));
    client()
        .push_signature(&pinned, b"one".to_vec())
        .await
        .unwrap();
    let (two, three) = (client(), client());
    let (two, three) = tokio::join!(
        two.push_signature(&pinned, b"two".to_vec()),
        three.push_signature(&pinned, b"three".to_vec()),
    );
    two.unwrap();
    three.unwrap();
    assert_eq!(client().signatures(&pinned).await.unwrap().len(), 3);
}

#[tokio::test]
async fn rewrites_the_cosign_tag_until_it_contains_the_own_layer() {
    let registry = Registry::honest().await.unwrap();
    let pinned = pushed(&registry).await;
    let client = client();
    for (text, lost) in [("one", 0), ("two", 1), ("two", 0)] {
        registry.set_fault(Some(Fault::LostUpdates(lost)));
        let push = client.push_legacy_signature(&pinned, text.into(), BTreeMap::new());
        push.await.unwrap();
    }
    assert_eq!(client.signatures(&pinned).await.unwrap().len(), 2);
    registry.set_fault(Some(Fault::LostUpdates(99)));
    let push = client.push_legacy_signature(&pinned, "three".into(), BTreeMap::new());
    let code = push.await.unwrap_err().finding().code;
    assert_eq!(code, codes::registry::SIGNATURE_LOST);
}

#[tokio::test]
async fn ignores_referrers_of_other_types_and_other_subjects() {
    let registry = Registry::start(Settings {
        referrers_api: false,
        ..Settings::default()
    })
    .await
    .unwrap();
    let pinned = pushed(&registry).await;
    let client = client();
    client
        .push_signature(&pinned, b"ours".to_vec())
        .await
        .unwrap();
    let tag = format!("sha256-{}", pinned.digest().hex());
    let index = registry.manifest("team/web", &tag).unwrap();
    let mut index: serde_json::Value = serde_json::from_slice(&index).unwrap();
    let entries = index["manifests"].as_array_mut().unwrap();
    // As cosign 3 writes it.
    entries[0]["artifactType"] = crate::media::EMPTY.into();
    // The bundle itself (without a subject), a deleted one, one with another hash.
    let own = entries[0].clone();
    for digest in [
        pinned.digest().to_string(),
        Digest::of(b"gone").to_string(),
        format!("sha512:{}", "0".repeat(128)),
    ] {
        let mut entry = own.clone();
        entry["digest"] = digest.into();
        entries.push(entry);
    }
    registry.put_manifest(
        "team/web",
        &tag,
        crate::media::INDEX,
        index.to_string().as_bytes(),
    );
    let read = client.signatures(&pinned).await.unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].bytes, b"ours");
}

#[tokio::test]
async fn error_for_an_index_names_it_as_one() {
    let registry = Registry::honest().await.unwrap();
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
