//! Referrers: the API, the fallback tag, and the tags of cosign 2.

use bundle_testkit::RoundCount;

use super::signatures::{client_with_long_deadline, layer, put_older};
use super::*;

/// Returns the rounds of requests with which a new client reads the one signature of `reference`.
async fn rounds_of_signatures(registry: &Registry, reference: &Reference) -> RoundCount {
    let client = client_with_long_deadline().with_speculative_reads();
    registry.count_rounds();
    let pinned = reference.pin(client.resolve(reference).await.unwrap());
    let found = client.signatures(&pinned).await.unwrap();
    assert_eq!(found.len(), 1);
    registry.rounds()
}

#[tokio::test]
async fn speculative_reads_need_no_round_for_discovery() {
    for (is_referrer, rounds) in [(false, 2), (true, 3)] {
        let registry = Registry::without_faults().await.unwrap();
        let pinned = pushed(&registry).await;
        if is_referrer {
            let push = client()
                .push_signature(&pinned, b"signature".to_vec())
                .await;
            push.unwrap();
        } else {
            let signature = layer(&registry, crate::media::SIMPLE_SIGNING, b"signature");
            put_older(&registry, &pinned, &[signature]);
        }
        // The first round has one `GET /v2/`, and the requests for the referrers API, for the
        // fallback tag, and for the two tags of cosign 2. Each later round has one request.
        let requests = 5 + rounds - 1;
        assert_eq!(
            rounds_of_signatures(&registry, pinned.reference()).await,
            RoundCount { rounds, requests }
        );
        // Another round resolves the tag.
        let tagged: Reference = registry.reference("team/web:1.4.0").parse().unwrap();
        let expected = RoundCount {
            rounds: rounds + 1,
            requests: requests + 1,
        };
        assert_eq!(rounds_of_signatures(&registry, &tagged).await, expected);
    }
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
    let registry = Registry::without_faults().await.unwrap();
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
        (Fault::NoResponse, codes::registry::STALLED),
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
    let registry = Registry::without_faults().await.unwrap();
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
    // cosign 3 writes the media type of the empty configuration as artifact type into the list.
    entries[0]["artifactType"] = crate::media::EMPTY.into();
    // Adds three entries that are not referrers: the bundle itself, a deleted manifest, and a
    // digest of another algorithm.
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
