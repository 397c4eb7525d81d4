use super::*;
use crate::blob::Blob;
use crate::manifest::{Descriptor, ParsedManifest, RawManifest};
use crate::media;

fn home(registry: &Registry) -> Repository {
    registry.reference("team/web").parse().unwrap()
}

/// Returns an index of one image for one platform, with the fields of `extra`.
fn index(extra: &str) -> RawManifest {
    let image = Descriptor::of(media::MANIFEST, b"image");
    let text = format!(
        r#"{{ "schemaVersion": 2, "mediaType": "{}", "manifests": [{{ "mediaType": "{}", "digest": "{}", "size": {}, "platform": {{ "os": "linux", "architecture": "arm64", "variant": "v8" }} }}]{extra} }}"#,
        media::INDEX,
        image.media_type,
        image.digest,
        image.size
    );
    RawManifest::new(None, text).unwrap()
}

#[tokio::test]
async fn documents_are_copied_byte_for_byte() {
    let registry = Registry::without_faults().await.unwrap();
    let (client, home) = (client(), home(&registry));
    let index = index("");
    assert_eq!(client.manifest_exists(&home, "1").await.unwrap(), None);
    let stored = client.put_raw_manifest(&home, "1", &index).await.unwrap();
    assert_eq!((&stored.digest, stored.list), (&index.digest, None));
    for name in ["1", index.digest.as_str()] {
        let read = client.raw_manifest(&home, name).await.unwrap();
        assert_eq!(read, index);
    }
    let found = client.manifest_exists(&home, "1").await.unwrap();
    assert_eq!(found.as_ref(), Some(&index.digest));
    let ParsedManifest::Index(parsed) = index.parse().unwrap() else {
        panic!("it is an index");
    };
    let platform = parsed.manifests[0].platform.as_ref().unwrap();
    assert_eq!(platform.to_string(), "linux/arm64/v8");
    assert!(platform.matches(&"linux/arm64".parse().unwrap()));
    assert!(!platform.matches(&"linux/amd64".parse().unwrap()));
}

#[tokio::test]
async fn rejects_documents_with_another_digest_or_media_type() {
    let registry = Registry::without_faults().await.unwrap();
    let (client, home) = (client(), home(&registry));
    let index = index("");
    client.put_raw_manifest(&home, "1", &index).await.unwrap();
    for (fault, name, code) in [
        (
            Fault::AlteredManifest,
            "1",
            codes::registry::DIGEST_MISMATCH,
        ),
        (
            Fault::AlteredManifest,
            index.digest.as_str(),
            codes::registry::DIGEST_MISMATCH,
        ),
        (Fault::LyingHeader, "1", codes::registry::DIGEST_MISMATCH),
        (Fault::HugeManifest, "1", codes::registry::TOO_LARGE),
        (Fault::Html, "1", codes::registry::WRONG_MEDIA_TYPE),
        (
            Fault::WrongMediaType("application/json".to_owned()),
            "1",
            codes::registry::WRONG_MEDIA_TYPE,
        ),
    ] {
        registry.set_fault(Some(fault.clone()));
        let error = client.raw_manifest(&home, name).await.unwrap_err();
        assert_eq!(error.finding().code, code, "{fault:?}: {error}");
    }
    assert!(registry.sent() < 32 << 20, "{} bytes", registry.sent());
    // An index with the media type of an image is parsed as an image, and is rejected because it
    // has no configuration.
    registry.set_fault(Some(Fault::WrongMediaType(media::MANIFEST.to_owned())));
    let read = client.raw_manifest(&home, "1").await.unwrap();
    let error = read.parse().unwrap_err();
    assert!(error.contains("missing field `config`"), "{error}");
}

#[tokio::test]
async fn document_with_subject_is_listed_as_its_referrer() {
    for referrers_api in [true, false] {
        let registry = Registry::start(Settings {
            referrers_api,
            page: 1,
            ..Settings::default()
        })
        .await
        .unwrap();
        let (client, home) = (client(), home(&registry));
        let subject = index("");
        client.put_raw_manifest(&home, "1", &subject).await.unwrap();
        assert_eq!(client.referrers(&home, &subject.digest).await.unwrap(), []);
        let mut expected = Vec::new();
        for kind in [
            "application/vnd.example.sbom",
            "application/vnd.example.scan",
        ] {
            let about = index(&format!(
                r#", "artifactType": "{kind}", "annotations": {{ "kind": "{kind}" }}, "subject": {}"#,
                serde_json::to_string(&subject.descriptor()).unwrap()
            ));
            let name = about.digest.as_str();
            let stored = client.put_raw_manifest(&home, name, &about).await.unwrap();
            assert_eq!(stored.list.is_none(), referrers_api);
            expected.push((about.digest, Some(kind.to_owned())));
        }
        let listed = client.referrers(&home, &subject.digest).await.unwrap();
        let mut listed: Vec<_> = listed
            .into_iter()
            .map(|entry| (entry.digest, entry.artifact_type))
            .collect();
        listed.sort();
        expected.sort();
        assert_eq!(listed, expected);
    }
}

#[tokio::test]
async fn lists_referrers_of_api_and_fallback_tag_together() {
    let registry = Registry::without_faults().await.unwrap();
    let (client, home) = (client(), home(&registry));
    let subject = index("");
    client.put_raw_manifest(&home, "1", &subject).await.unwrap();
    let of = serde_json::to_string(&subject.descriptor()).unwrap();
    let new = index(&format!(r#", "artifactType": "new/x", "subject": {of}"#));
    let name = new.digest.as_str();
    client.put_raw_manifest(&home, name, &new).await.unwrap();
    // The fallback list has an older entry from a registry without the API, and an entry that the
    // API lists too.
    let old = Descriptor::of(media::MANIFEST, b"older");
    let list = format!(
        r#"{{"schemaVersion":2,"mediaType":"{}","manifests":[{},{}]}}"#,
        media::INDEX,
        serde_json::to_string(&old).unwrap(),
        serde_json::to_string(&new.descriptor()).unwrap()
    );
    let tag = format!("sha256-{}", subject.digest.hex());
    registry.put_manifest("team/web", &tag, media::INDEX, list.as_bytes());
    let listed = client.referrers(&home, &subject.digest).await.unwrap();
    let digests: Vec<_> = listed.into_iter().map(|entry| entry.digest).collect();
    assert_eq!(digests, [new.digest, old.digest]);
}

#[tokio::test]
async fn stops_endless_lists_at_a_limit() {
    let registry = Registry::without_faults().await.unwrap();
    let (client, home) = (client(), home(&registry));
    let subject = index("");
    client.put_raw_manifest(&home, "1", &subject).await.unwrap();
    for fault in [Fault::LoopingList, Fault::HugeList] {
        registry.set_fault(Some(fault.clone()));
        let error = client.referrers(&home, &subject.digest).await.unwrap_err();
        assert_eq!(
            error.finding().code,
            codes::registry::TOO_LARGE,
            "{fault:?}"
        );
        let error = client.tags(&home).await.unwrap_err();
        assert_eq!(
            error.finding().code,
            codes::registry::TOO_LARGE,
            "{fault:?}"
        );
    }
    assert!(registry.sent() < 32 << 20, "{} bytes", registry.sent());
}

#[tokio::test]
async fn lists_tags_over_several_pages() {
    let registry = Registry::start(Settings {
        page: 2,
        ..Settings::default()
    })
    .await
    .unwrap();
    let (client, home) = (client(), home(&registry));
    let error = client.tags(&home).await.unwrap_err();
    assert_eq!(error.finding().code, codes::registry::NOT_FOUND);
    let tags = ["1.0.0", "1.1.0", "1.2.0", "latest", "x"];
    for tag in tags {
        client
            .put_raw_manifest(&home, tag, &index(""))
            .await
            .unwrap();
    }
    assert_eq!(client.tags(&home).await.unwrap(), tags);
}

#[tokio::test]
async fn existence_of_a_blob_is_reported() {
    let registry = Registry::without_faults().await.unwrap();
    let blob = Blob::new(media::LAYER_TAR, "x");
    let digest = &blob.descriptor.digest;
    assert!(
        !client()
            .has_blob(&home(&registry), digest, false)
            .await
            .unwrap()
    );
    registry.put_blob("team/web", "x");
    assert!(
        client()
            .has_blob(&home(&registry), digest, false)
            .await
            .unwrap()
    );
}

#[expect(
    clippy::disallowed_methods,
    reason = "measures how long the client waits"
)]
#[tokio::test]
async fn retries_after_429_with_retry_after() {
    let registry = Registry::without_faults().await.unwrap();
    let (client, home) = (client(), home(&registry));
    client
        .put_raw_manifest(&home, "1", &index(""))
        .await
        .unwrap();
    let busy = |retry_after: String| Fault::BusyUntil {
        status: 429,
        times: 1,
        retry_after,
    };
    // `Retry-After` can contain seconds or a date. The dates are in the past and in the future.
    let date = |seconds: i64| {
        let then = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
        jiff::fmt::rfc2822::DateTimePrinter::new()
            .timestamp_to_rfc9110_string(&then)
            .unwrap()
    };
    for (retry_after, least) in [
        (date(5), Duration::from_millis(900)),
        (date(-60), Duration::ZERO),
        ("1".to_owned(), Duration::from_millis(900)),
    ] {
        registry.set_fault(Some(busy(retry_after.clone())));
        let start = std::time::Instant::now();
        client.raw_manifest(&home, "1").await.unwrap();
        let waited = start.elapsed();
        assert!(waited >= least, "{retry_after}: {waited:?}");
    }
    // The client does not wait for a whole day.
    for retry_after in ["86400".to_owned(), date(86_400)] {
        registry.set_fault(Some(busy(retry_after)));
        let error = client.raw_manifest(&home, "1").await.unwrap_err();
        assert_eq!(error.finding().code, codes::registry::BUSY);
    }
}
