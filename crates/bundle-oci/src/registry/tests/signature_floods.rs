//! Repositories with very many signatures and attestations. The number of requests and results is
//! bounded, and valid signatures are not displaced.

use bundle_core::policy::{NotReadReason, RawSignature};
use serde_json::json;

use super::signatures::*;
use super::*;
use crate::limits::{REFERRER_BYTES, REFERRERS, SIGNATURES_BYTES};
use crate::media;

#[tokio::test]
async fn counts_ten_thousand_signatures_without_reading_them() {
    let registry = Registry::start(Settings {
        page: 1000,
        ..Settings::default()
    });
    let registry = registry.await.unwrap();
    let pinned = pushed(&registry).await;
    let one = layer(&registry, media::SIGSTORE_BUNDLE, b"{}");
    for number in 0..10_000 {
        let mut numbered = one.clone();
        numbered["annotations"] = json!({ "number": number.to_string() });
        put_referrer(&registry, &pinned, &[numbered]);
    }
    let older = layer(&registry, media::SIMPLE_SIGNING, b"{}");
    put_older(&registry, &pinned, &vec![older; 10_000]);
    let before = registry.seen().len();
    let found = client_with_long_deadline()
        .signatures(&pinned)
        .await
        .unwrap();
    assert_eq!(read(&found), REFERRERS);
    let limit = REFERRERS;
    assert_eq!(
        found.last().unwrap().unread,
        Some(NotReadReason::CountLimit { limit })
    );
    assert_eq!(found.len(), REFERRERS + 1_000);
    let asked = registry.seen().len() - before;
    assert!(asked < 2 * REFERRERS + 40, "{asked} requests");
}

#[tokio::test]
async fn reads_layers_of_one_referrer_up_to_the_byte_limit() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    let large = layer(&registry, media::SIGSTORE_BUNDLE, &vec![b' '; 1 << 20]);
    for number in 0..2 {
        let mut layers = vec![large.clone(); 1_000];
        layers[0]["annotations"] = json!({ "number": number.to_string() });
        put_referrer(&registry, &pinned, &layers);
    }
    let mut huge = large.clone();
    huge["size"] = json!(100 << 20);
    put_older(&registry, &pinned, &[]);
    put_referrer(&registry, &pinned, &[huge]);
    let found = client_with_long_deadline()
        .signatures(&pinned)
        .await
        .unwrap();
    let bytes: usize = found.iter().map(|one| one.bytes.len()).sum();
    assert!(bytes as u64 <= SIGNATURES_BYTES, "{bytes}");
    assert!(read(&found) >= 15, "{}", read(&found));
    assert!(found.len() <= REFERRERS + 1_000);
    let crowded = NotReadReason::TotalSizeLimit {
        limit: SIGNATURES_BYTES,
    };
    assert!(found.iter().any(|one| one.unread == Some(crowded)));
}

#[tokio::test]
async fn annotations_of_layers_count_towards_the_byte_limit() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    // This manifest exceeds the maximum size of a referrer's manifest.
    let mut oversized = layer(&registry, media::SIGSTORE_BUNDLE, b"{}");
    let length = usize::try_from(REFERRER_BYTES).unwrap();
    oversized["mediaType"] = json!(format!("{}{}", media::SIGSTORE_BUNDLE, "x".repeat(length)));
    put_referrer(&registry, &pinned, &[oversized]);
    // Each of these manifests is below its limit. The client reads only as many manifests as the
    // total limit allows.
    let mut padded = layer(&registry, media::SIGSTORE_BUNDLE, b"{}");
    padded["artifactType"] = json!("x".repeat(length / 2));
    for number in 0..200 {
        padded["annotations"] = json!({ "number": number.to_string() });
        put_referrer(&registry, &pinned, &[padded.clone()]);
    }
    let found = client_with_long_deadline()
        .signatures(&pinned)
        .await
        .unwrap();
    let large = |one: &&RawSignature| matches!(one.unread, Some(NotReadReason::TooLarge { limit, .. }) if limit == REFERRER_BYTES);
    assert_eq!(found.iter().filter(large).count(), 1);
    let kept = read(&found) * (length / 2);
    assert!(kept > 0 && kept as u64 <= SIGNATURES_BYTES, "{kept}");
    let crowded = Some(NotReadReason::TotalSizeLimit {
        limit: SIGNATURES_BYTES,
    });
    assert!(found.iter().any(|one| one.unread == crowded));
}

#[tokio::test]
async fn skips_a_layer_of_100_mib() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    let (bytes, limit) = (100 << 20, 1 << 20);
    for media_type in [media::SIGSTORE_BUNDLE, media::SIMPLE_SIGNING] {
        let mut huge = layer(&registry, media_type, media_type.as_bytes());
        huge["size"] = json!(bytes);
        put_referrer(&registry, &pinned, &[huge]);
    }
    let found = client().signatures(&pinned).await.unwrap();
    let told: Vec<_> = found.iter().map(|one| one.unread).collect();
    assert_eq!(told, [Some(NotReadReason::TooLarge { bytes, limit }); 2]);
    assert!(
        !registry
            .lines()
            .iter()
            .any(|line| line.contains("/blobs/") && line.starts_with("GET"))
    );
}

#[tokio::test]
async fn endless_list_is_read_to_its_limit_and_reported_as_incomplete() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    client()
        .push_signature(&pinned, b"one".to_vec())
        .await
        .unwrap();
    registry.set_fault(Some(Fault::LoopingList));
    let found = client().signatures(&pinned).await.unwrap();
    // The registry repeats the same page, which has one distinct signature.
    assert_eq!(read(&found), 1);
    let limit = REFERRERS;
    assert_eq!(
        found.last().unwrap().unread,
        Some(NotReadReason::CountLimit { limit })
    );
}

#[tokio::test]
async fn signatures_are_read_before_300_attestations() {
    for referrers_api in [true, false] {
        let registry = Registry::start(Settings {
            referrers_api,
            ..Settings::default()
        });
        let registry = registry.await.unwrap();
        let pinned = pushed(&registry).await;
        let one = layer(&registry, media::SIGSTORE_BUNDLE, b"attestation");
        let mut listed = Vec::new();
        for number in 0..300 {
            let says = json!({
                PREDICATE: "https://slsa.dev/provenance/v1",
                "number": number.to_string(),
            });
            let mut entry = put_referrer_with_annotations(
                &registry,
                &pinned,
                std::slice::from_ref(&one),
                &says,
            );
            entry["annotations"] = says;
            listed.push(entry);
        }
        if !referrers_api {
            let list =
                json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": listed });
            put_list(&registry, &pinned, &list.to_string());
        }
        let client = client_with_long_deadline();
        let push = client.push_signature(&pinned, b"signature".to_vec()).await;
        assert_eq!(push.unwrap().tag.is_none(), referrers_api);
        let found = client.signatures(&pinned).await.unwrap();
        assert_eq!(found[0].bytes, b"signature", "{referrers_api}");
        assert_eq!(read(&found), REFERRERS);
    }
}

#[tokio::test]
async fn flood_in_one_place_does_not_displace_another() {
    let places = ["referrers", "sig", "att"];
    for flooded in places {
        let registry = Registry::without_faults().await.unwrap();
        let pinned = pushed(&registry).await;
        let mut good = Vec::new();
        for place in places {
            let mut layers = |media_type| {
                if place == flooded {
                    vec![layer(&registry, media_type, b"flood"); 300]
                } else {
                    good.push(place.as_bytes());
                    vec![layer(&registry, media_type, place.as_bytes())]
                }
            };
            match place {
                "referrers" => {
                    // All referrers have the media type of signatures, because any client with
                    // write access can set this media type.
                    for (number, one) in layers(media::SIGSTORE_BUNDLE).into_iter().enumerate() {
                        let says = json!({
                            PREDICATE: "https://sigstore.dev/cosign/sign/v1",
                            "number": number.to_string(),
                        });
                        put_referrer_with_annotations(&registry, &pinned, &[one], &says);
                    }
                }
                "sig" => put_older(&registry, &pinned, &layers(media::SIMPLE_SIGNING)),
                kind => put_tag(&registry, &pinned, kind, &layers(media::DSSE_ENVELOPE)),
            }
        }
        let found = client_with_long_deadline()
            .signatures(&pinned)
            .await
            .unwrap();
        assert_eq!(read(&found), REFERRERS, "{flooded}");
        for wanted in good {
            let at = found.iter().position(|one| one.bytes == wanted);
            // The valid signature is among the first signatures, which are verified.
            assert!(at.is_some_and(|at| at < REFERRERS), "{flooded} {at:?}");
        }
    }
}

#[tokio::test]
async fn oversized_token_is_an_error_and_not_an_oversized_signature() {
    let registry = Registry::start(Settings {
        login: Some(bundle_testkit::Login {
            user: "ana".to_owned(),
            password: "secret".to_owned(),
            token: true,
        }),
        ..Settings::default()
    });
    let registry = registry.await.unwrap();
    let digest = registry.publish(TEAM, "1.4.0", b"");
    let reference: Reference = registry.reference("team/web:1.4.0").parse().unwrap();
    let pinned = reference.pin(digest);
    let one = layer(&registry, media::SIGSTORE_BUNDLE, b"signature");
    put_referrer(&registry, &pinned, &[one]);
    let (mut known, mut unknown) = (0, 0);
    // The registry returns oversized tokens after a number of requests. The loop covers every
    // request that needs a token.
    for after in 0..12 {
        registry.set_fault(Some(Fault::HugeTokens { after }));
        match ana(&registry, "secret").signatures(&pinned).await {
            Ok(found) => {
                assert_eq!((read(&found), found.len()), (1, 1), "{after}: {found:?}");
                known += 1;
            }
            Err(error) => {
                assert_eq!(error.finding().code, codes::registry::TOO_LARGE);
                assert!(error.to_string().contains("the token is larger"), "{error}");
                unknown += 1;
            }
        }
    }
    assert!(known > 0 && unknown > 4, "{known} {unknown}");
}
