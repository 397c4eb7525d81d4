use bundle_testkit::Ranges;
use bytes::Bytes;
use futures::StreamExt as _;

use super::*;
use crate::blob::{Blob, BlobContent};
use crate::manifest::Descriptor;
use crate::media;

/// Returns `length` bytes of test content.
fn content(length: usize) -> Vec<u8> {
    (0_u32..)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .take(length)
        .collect()
}

pub(super) async fn stored(registry: &Registry, length: usize) -> (Repository, Blob) {
    let blob = Blob::new(media::LAYER_TAR, content(length));
    registry.put_blob("team/web", bytes_of(&blob).clone());
    let repository = registry.reference("team/web").parse().unwrap();
    (repository, blob)
}

#[tokio::test]
async fn streams_and_verifies_a_blob() {
    let registry = Registry::without_faults().await.unwrap();
    for length in [0, 1, 3 << 20] {
        let (repository, blob) = stored(&registry, length).await;
        let read = client().blob(&repository, &blob.descriptor).bytes().await;
        assert_eq!(read.unwrap(), bytes_of(&blob));
    }
}

#[tokio::test]
async fn resumes_a_broken_download_at_its_offset() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    for ranges in [Ranges::Honored, Ranges::Ignored] {
        // The first three responses end after 300,000 bytes. The fourth response contains all bytes
        // that were requested.
        registry.set_fault(Some(Fault::BrokenBlob {
            after: 300_000,
            times: 3,
            ranges,
        }));
        let before = registry.seen().len();
        let read = client().blob(&repository, &blob.descriptor).bytes().await;
        assert_eq!(read.unwrap(), bytes_of(&blob), "{ranges:?}");
        let asked: Vec<_> = registry.seen().split_off(before);
        assert_eq!(asked[0].range, None);
        assert_eq!(asked[1].range.as_deref(), Some("bytes=300000-"));
        assert_eq!(asked.len(), 4, "{ranges:?}");
    }
}

#[tokio::test]
async fn rejects_false_content_ranges() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    for (ranges, code) in [
        (Ranges::ShiftedRange, codes::registry::MALFORMED),
        (Ranges::WrongRange, codes::registry::DIGEST_MISMATCH),
        (Ranges::RangeNotSatisfiable, codes::registry::REFUSED),
    ] {
        registry.set_fault(Some(Fault::BrokenBlob {
            after: 300_000,
            times: 1,
            ranges,
        }));
        let error = client()
            .blob(&repository, &blob.descriptor)
            .bytes()
            .await
            .unwrap_err();
        assert_eq!(error.finding().code, code, "{ranges:?}: {error}");
    }
}

#[tokio::test]
async fn stops_after_repeatedly_broken_downloads() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    registry.set_fault(Some(Fault::BrokenBlob {
        after: 1000,
        times: 99,
        ranges: Ranges::Honored,
    }));
    let before = registry.seen().len();
    let error = client()
        .blob(&repository, &blob.descriptor)
        .bytes()
        .await
        .unwrap_err();
    assert!(
        matches!(error.reason, RegistryErrorReason::Cut { .. }),
        "{error}"
    );
    assert_eq!(registry.seen().len() - before, 6);
}

#[tokio::test]
async fn content_with_another_digest_never_ends_without_error() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    for (fault, code) in [
        (Fault::LyingBlob, codes::registry::DIGEST_MISMATCH),
        (Fault::TruncatedBlob, codes::registry::DIGEST_MISMATCH),
        (Fault::EndlessBlob, codes::registry::DIGEST_MISMATCH),
        (Fault::Html, codes::registry::DIGEST_MISMATCH),
        (Fault::StallingBlob, codes::registry::STALLED),
        (Fault::NoResponse, codes::registry::STALLED),
        (
            Fault::Busy {
                status: 503,
                times: 99,
            },
            codes::registry::BUSY,
        ),
    ] {
        registry.set_fault(Some(fault.clone()));
        let mut reader = client().blob(&repository, &blob.descriptor);
        let mut count = 0;
        let error = loop {
            match reader.next().await.unwrap() {
                Ok(piece) => count += piece.len(),
                Err(error) => break error,
            }
        };
        assert_eq!(error.finding().code, code, "{fault:?}: {error}");
        assert!(count < 1_000_000, "{fault:?}: the end was let through");
        assert!(reader.next().await.is_none(), "{fault:?}");
    }
    // The registry has sent only the bytes that fit into the buffers of the connection.
    assert!(registry.sent() < 32 << 20, "{} bytes", registry.sent());
}

#[tokio::test]
async fn rejects_other_content_length_before_reading() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    for size in [0, 999_999, 1_000_001] {
        let descriptor = Descriptor {
            size,
            ..blob.descriptor.clone()
        };
        let error = client()
            .blob(&repository, &descriptor)
            .bytes()
            .await
            .unwrap_err();
        assert!(
            matches!(
                error.reason,
                RegistryErrorReason::SizeMismatch {
                    found: 1_000_000,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn abandoned_read_can_be_continued() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    let there = &bytes_of(&blob)[..400_000];
    let mut hasher = crate::hash::Hasher::new();
    hasher.update(there);
    let client = client();
    let rest = client
        .blob_after(&repository, &blob.descriptor, 400_000, Some(hasher))
        .bytes()
        .await
        .unwrap();
    assert_eq!(rest, bytes_of(&blob).slice(400_000..));
    let wrong = client
        .blob_after(
            &repository,
            &blob.descriptor,
            400_000,
            Some(crate::hash::Hasher::new()),
        )
        .bytes()
        .await
        .unwrap_err();
    assert_eq!(wrong.finding().code, codes::registry::DIGEST_MISMATCH);
}

/// Returns a client that requires `min_rate` bytes per second, measured over `window`.
fn client_with_min_rate(min_rate: u64, window: Duration) -> Client {
    Client::new(ClientOptions {
        deadlines: Deadlines {
            min_rate,
            window,
            ..Deadlines::default()
        },
        ..ClientOptions::default()
    })
    .unwrap()
}

#[tokio::test]
async fn registry_below_the_minimum_rate_is_given_up_after_one_window() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 1_000_000).await;
    // The registry sends 20 KB per second.
    registry.set_fault(Some(Fault::SlowBlob {
        piece: 100,
        pause: Duration::from_millis(5),
    }));
    let window = Duration::from_millis(60);
    let before = registry.seen().len();
    let error = client_with_min_rate(1 << 20, window)
        .blob(&repository, &blob.descriptor)
        .bytes()
        .await
        .unwrap_err();
    let RegistryErrorReason::TooSlow { received_bytes, .. } = error.reason else {
        panic!("{error}");
    };
    // The minimum rate is per second. The rate is also checked for windows that are shorter than a
    // second.
    assert!(received_bytes < (1 << 20) * 60 / 1000, "{received_bytes}");
    assert_eq!(error.finding().code, codes::registry::STALLED);
    assert!(error.is_retryable());
    assert_eq!(registry.seen().len() - before, 1, "asked again");
}

#[tokio::test]
async fn slow_registry_is_read_to_the_end_if_it_keeps_to_the_minimum_rate() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 2000).await;
    registry.set_fault(Some(Fault::SlowBlob {
        piece: 100,
        pause: Duration::from_millis(5),
    }));
    // The transfer takes several windows. A minimum rate of 0 disables the check.
    for min_rate in [100, 0] {
        let client = client_with_min_rate(min_rate, Duration::from_millis(20));
        let read = client.blob(&repository, &blob.descriptor).bytes().await;
        assert_eq!(read.unwrap(), bytes_of(&blob), "{min_rate}");
    }
}

#[tokio::test]
async fn time_that_the_reader_of_a_blob_takes_is_not_counted_against_the_registry() {
    let registry = Registry::without_faults().await.unwrap();
    let (repository, blob) = stored(&registry, 3 << 20).await;
    // The window is longer than the delays that a busy machine can cause.
    let window = Duration::from_millis(500);
    let mut reader = client_with_min_rate(1 << 20, window).blob(&repository, &blob.descriptor);
    let mut count = 0;
    while let Some(piece) = reader.next().await {
        if count < 30_000 {
            // The receiver pauses, for example because it waits for memory.
            tokio::time::sleep(window * 2).await;
        }
        count += piece.unwrap().len();
    }
    assert_eq!(count, 3 << 20);
}

/// Returns the bytes of a blob in memory.
pub(super) fn bytes_of(blob: &Blob) -> &Bytes {
    match &blob.content {
        BlobContent::Memory(bytes) => bytes,
        BlobContent::File(_) | BlobContent::Remote(_) => panic!("not in memory"),
    }
}
