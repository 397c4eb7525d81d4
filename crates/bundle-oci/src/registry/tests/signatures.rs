//! Tests with registries that hide or forge signatures, return too many signatures, or deny access.
//! The number of results is bounded. The result is "no signature" only if every location was read.

use bundle_core::policy::{NotReadReason, RawSignature};
use serde_json::json;

use super::*;
use crate::limits::REFERRERS;
use crate::media;

pub(super) const TEAM: &str = "team/web";

/// Stores an empty list under the fallback tag and under the tag `.sig`, so that both tags exist.
pub(super) fn empty_places(registry: &Registry, pinned: &PinnedReference) {
    let list = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": [] });
    put_list(registry, pinned, &list.to_string());
    put_older(registry, pinned, &[]);
}

pub(super) fn put_list(registry: &Registry, pinned: &PinnedReference, index: &str) {
    let tag = format!("sha256-{}", pinned.digest().hex());
    registry.put_manifest(TEAM, &tag, media::INDEX, index.as_bytes());
}

pub(super) fn put_older(
    registry: &Registry,
    pinned: &PinnedReference,
    layers: &[serde_json::Value],
) {
    put_tag(registry, pinned, "sig", layers);
}

/// Stores content under one of cosign 2's tags.
pub(super) fn put_tag(
    registry: &Registry,
    pinned: &PinnedReference,
    kind: &str,
    layers: &[serde_json::Value],
) {
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media::MANIFEST,
        "config": { "mediaType": media::CONFIG, "digest": Digest::of(b"{}"), "size": 2 },
        "layers": layers,
    });
    let tag = format!("sha256-{}.{kind}", pinned.digest().hex());
    registry.put_manifest(TEAM, &tag, media::MANIFEST, manifest.to_string().as_bytes());
}

/// Stores a blob with these bytes. Returns its descriptor as a layer with this media type.
pub(super) fn layer(registry: &Registry, media_type: &str, bytes: &[u8]) -> serde_json::Value {
    let digest = registry.put_blob(TEAM, bytes.to_vec());
    json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
}

/// Stores a referrer with these layers, which the referrers API lists.
pub(super) fn put_referrer(
    registry: &Registry,
    pinned: &PinnedReference,
    layers: &[serde_json::Value],
) {
    put_referrer_with_annotations(registry, pinned, layers, &json!({}));
}

/// Stores a referrer whose manifest has these annotations. Returns its descriptor for a list of
/// referrers. The descriptor omits the annotations.
pub(super) fn put_referrer_with_annotations(
    registry: &Registry,
    pinned: &PinnedReference,
    layers: &[serde_json::Value],
    annotations: &serde_json::Value,
) -> serde_json::Value {
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": media::MANIFEST,
        "artifactType": media::SIGSTORE_BUNDLE,
        "config": { "mediaType": media::EMPTY, "digest": Digest::of(b"{}"), "size": 2 },
        "layers": layers,
        "subject": { "mediaType": media::MANIFEST, "digest": pinned.digest(), "size": 1 },
        "annotations": annotations,
    });
    let text = manifest.to_string();
    let digest = Digest::of(text.as_bytes());
    registry.put_manifest(TEAM, digest.as_str(), media::MANIFEST, text.as_bytes());
    json!({
        "mediaType": media::MANIFEST,
        "digest": digest,
        "size": text.len(),
        "artifactType": media::SIGSTORE_BUNDLE,
    })
}

/// Returns a client with a long deadline, because the registry of the tests is slow under load.
pub(super) fn client_with_long_deadline() -> Client {
    Client::new(ClientOptions {
        logins: Logins::anonymous(),
        ..ClientOptions::default()
    })
    .unwrap()
}

pub(super) fn read(signatures: &[RawSignature]) -> usize {
    let read = signatures.iter().filter(|one| one.unread.is_none());
    read.count()
}

#[tokio::test]
async fn reports_no_signatures_only_if_every_place_was_read() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    empty_places(&registry, &pinned);
    let client = client();
    // Registries without the referrers API respond with 400, 404, 405, 406 or 501. For a tag, only
    // 404 means that the tag does not exist.
    let of_the_api = [200, 400, 404, 405, 406, 501, 401, 403, 418, 429, 500];
    let of_tags = [200, 404, 400, 406, 401, 403, 500];
    let mut none = 0;
    for api in of_the_api {
        for list in of_tags {
            for older in of_tags {
                registry.set_fault(Some(Fault::SignatureLocations { api, list, older }));
                let places = [api, list, older];
                let said = client.signatures(&pinned).await;
                let known = |code| matches!(code, 200 | 404);
                let known_api = known(api) || matches!(api, 400 | 405 | 406 | 501);
                if known_api && known(list) && known(older) {
                    assert_eq!(said.unwrap(), [], "{places:?}");
                    none += 1;
                    continue;
                }
                // The result is an error, and not an empty list. The code of the error is in the
                // catalog of diagnostics.
                let code = said.expect_err("not known").finding().code;
                let denied = places.iter().any(|code| matches!(code, 401 | 403));
                let busy = places.iter().any(|code| matches!(code, 429 | 500));
                let refused = [list, older].iter().any(|code| matches!(code, 400 | 406));
                assert!(
                    (denied && code == codes::registry::DENIED)
                        || (busy && code == codes::registry::BUSY)
                        || ((refused || api == 418) && code == codes::registry::REFUSED),
                    "{places:?}: {code}"
                );
            }
        }
    }
    assert_eq!(none, 24);
}

/// Responses of registries without a referrers API.
fn without_api() -> Vec<Fault> {
    let plain = [400, 404, 405, 406, 501].map(Fault::ReferrersApi);
    let pages = [200, 400, 404, 405, 406, 501].map(Fault::ReferrersPage);
    plain.into_iter().chain(pages).collect()
}

#[tokio::test]
async fn signs_and_verifies_through_the_fallback_tag_for_each_response_of_a_missing_api() {
    for fault in without_api() {
        let registry = Registry::start(Settings {
            referrers_api: false,
            ..Settings::default()
        });
        let registry = registry.await.unwrap();
        let pinned = pushed(&registry).await;
        registry.set_fault(Some(fault.clone()));
        let client = client();
        let stored = client.push_signature(&pinned, b"good".to_vec()).await;
        let tag = stored
            .unwrap_or_else(|error| panic!("{fault:?}: {error}"))
            .tag;
        assert_eq!(tag, Some(format!("sha256-{}", pinned.digest().hex())));
        let found = client.signatures(&pinned).await;
        let found = found.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(read(&found), 1, "{fault:?}");
        let home = Repository::from(pinned.reference());
        let listed = client.referrers(&home, pinned.digest()).await.unwrap();
        assert_eq!(listed.len(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn treats_a_web_page_in_place_of_the_api_by_its_status() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    for code in [200, 400, 404, 405, 406, 501] {
        registry.set_fault(Some(Fault::ReferrersPage(code)));
        assert_eq!(client().signatures(&pinned).await.unwrap(), [], "{code}");
    }
    for code in [401, 403, 418, 429, 500, 503] {
        registry.set_fault(Some(Fault::ReferrersPage(code)));
        assert!(client().signatures(&pinned).await.is_err(), "{code}");
    }
    // A web page in place of the fallback tag is not an empty list.
    registry.set_fault(Some(Fault::Html));
    let error = client().signatures(&pinned).await.unwrap_err();
    assert_eq!(error.finding().code, codes::registry::WRONG_MEDIA_TYPE);
}

#[tokio::test]
async fn ignores_the_subject_returned_for_the_fallback_tag() {
    let registry = Registry::start(Settings {
        referrers_api: false,
        ..Settings::default()
    });
    let registry = registry.await.unwrap();
    let pinned = pushed(&registry).await;
    let older = layer(&registry, media::SIMPLE_SIGNING, b"older");
    put_older(&registry, &pinned, &[older]);
    registry.set_fault(Some(Fault::ReferrersTagIsSubject));
    let found = client().signatures(&pinned).await.unwrap();
    assert_eq!(read(&found), 1);
    // A list that was written but cannot be read again is an error.
    let written = client().push_signature(&pinned, b"new".to_vec()).await;
    let lost = written.unwrap_err().finding();
    assert_eq!(lost.code, codes::registry::SIGNATURE_LOST);
}

#[tokio::test]
async fn forbidden_place_is_an_error_despite_signatures_in_another() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    client()
        .push_signature(&pinned, b"good".to_vec())
        .await
        .unwrap();
    for (api, list, older) in [(200, 403, 404), (200, 404, 401), (200, 500, 404)] {
        registry.set_fault(Some(Fault::SignatureLocations { api, list, older }));
        assert!(
            client().signatures(&pinned).await.is_err(),
            "{list} {older}"
        );
    }
    registry.set_fault(None);
    assert_eq!(read(&client().signatures(&pinned).await.unwrap()), 1);
}

#[tokio::test]
async fn forbidden_attestations_are_an_error_and_never_displace_signatures() {
    let registry = Registry::without_faults().await.unwrap();
    let pinned = pushed(&registry).await;
    let signature = layer(&registry, media::SIMPLE_SIGNING, b"signature");
    put_older(&registry, &pinned, &[signature]);
    for code in [401, 403, 500] {
        registry.set_fault(Some(Fault::Attestations(code)));
        assert!(client().signatures(&pinned).await.is_err(), "{code}");
    }
    registry.set_fault(None);
    let many = vec![layer(&registry, media::DSSE_ENVELOPE, b"envelope"); REFERRERS + 10];
    let other = layer(&registry, media::SIMPLE_SIGNING, b"no attestation");
    put_tag(&registry, &pinned, "att", &[vec![other], many].concat());
    let found = client_with_long_deadline()
        .signatures(&pinned)
        .await
        .unwrap();
    assert_eq!(found[0].bytes, b"signature");
    assert_eq!(read(&found), REFERRERS);
    let told = found.iter().filter(|one| {
        let limit = REFERRERS;
        one.unread == Some(NotReadReason::CountLimit { limit })
    });
    assert_eq!(told.count(), 11);
    assert!(found.iter().all(|one| one.bytes != b"no attestation"));
}

#[tokio::test]
async fn reads_signatures_that_only_the_fallback_tag_lists() {
    let old = Registry::start(Settings {
        referrers_api: false,
        ..Settings::default()
    });
    let old = old.await.unwrap();
    let pinned = pushed(&old).await;
    let client = client();
    client
        .push_signature(&pinned, b"ours".to_vec())
        .await
        .unwrap();
    // This registry has the same content and the same fallback list, but its referrers API returns
    // an empty list.
    let tag = format!("sha256-{}", pinned.digest().hex());
    let list = String::from_utf8(old.manifest(TEAM, &tag).unwrap()).unwrap();
    let new = Registry::without_faults().await.unwrap();
    let there = pushed(&new).await;
    assert_eq!(there.digest(), pinned.digest());
    let named: serde_json::Value = serde_json::from_str(&list).unwrap();
    let name = named["manifests"][0]["digest"].as_str().unwrap();
    let manifest = old.manifest(TEAM, name).unwrap();
    new.put_blob(TEAM, b"ours".to_vec());
    new.put_manifest(TEAM, name, media::MANIFEST, &manifest);
    put_list(&new, &there, &list);
    for api in [204, 404] {
        new.set_fault(Some(Fault::SignatureLocations {
            api,
            list: 200,
            older: 200,
        }));
        assert_eq!(read(&client.signatures(&there).await.unwrap()), 1, "{api}");
    }
}

pub(super) const PREDICATE: &str = "dev.sigstore.bundle.predicateType";

#[tokio::test]
async fn reads_signatures_listed_without_annotations() {
    let registry = Registry::start(Settings {
        referrers_api: false,
        ..Settings::default()
    });
    let registry = registry.await.unwrap();
    let pinned = pushed(&registry).await;
    let entry = |text: &str, predicate: Option<&str>| {
        let layer = layer(&registry, media::SIGSTORE_BUNDLE, text.as_bytes());
        let mut entry = put_referrer_with_annotations(&registry, &pinned, &[layer], &json!({}));
        if let Some(predicate) = predicate {
            entry["annotations"] = json!({ PREDICATE: predicate });
        }
        entry
    };
    let mut by_its_config = entry("another kind", None);
    by_its_config["artifactType"] = json!(media::EMPTY);
    let mut older = entry("older", None);
    older["artifactType"] = json!(media::COSIGN_SIGNATURE);
    let listed = [
        entry("attestation", Some("https://slsa.dev/provenance/v1")),
        by_its_config,
        entry("not said", None),
        older,
        entry("signature", Some("https://sigstore.dev/cosign/sign/v1")),
    ];
    let list = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": listed });
    put_list(&registry, &pinned, &list.to_string());
    let found = client().signatures(&pinned).await.unwrap();
    let texts: Vec<_> = found
        .iter()
        .map(|one| String::from_utf8_lossy(&one.bytes))
        .collect();
    assert_eq!(
        texts,
        [
            "older",
            "signature",
            "not said",
            "another kind",
            "attestation"
        ]
    );
}
