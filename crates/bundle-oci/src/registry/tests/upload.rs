use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use bundle_testkit::{Ranges, UploadFault};

use super::download::stored;
use super::*;
use crate::blob::{Blob, FilePart};
use crate::progress::Progress;

const SIZE: usize = 3 << 20;

/// The same content in memory, in a file, and in another registry.
struct Sources {
    blobs: Vec<(&'static str, Blob)>,
    _file: tempfile::NamedTempFile,
    other: Registry,
}

async fn sources() -> Sources {
    let other = Registry::without_faults().await.unwrap();
    let (repository, memory) = stored(&other, SIZE).await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(super::download::bytes_of(&memory)).unwrap();
    let part = Blob::file(memory.descriptor.clone(), FilePart::new(file.path(), 0));
    let remote = client().remote_blob(&repository, &memory.descriptor);
    Sources {
        blobs: vec![("memory", memory), ("file", part), ("remote", remote)],
        _file: file,
        other,
    }
}

#[derive(Debug, Default)]
struct Counted {
    moved: AtomicU64,
    again: AtomicU64,
    spared: AtomicU64,
}

impl Progress for Counted {
    fn moved(&self, bytes: u64) {
        self.moved.fetch_add(bytes, Ordering::Relaxed);
    }
    fn resent(&self, bytes: u64) {
        self.again.fetch_add(bytes, Ordering::Relaxed);
    }
    fn skipped(&self, bytes: u64) {
        self.spared.fetch_add(bytes, Ordering::Relaxed);
    }
}

fn home(registry: &Registry) -> Repository {
    registry.reference("team/copy").parse().unwrap()
}

#[tokio::test]
async fn uploads_a_blob_once_from_each_source() {
    let sources = sources().await;
    for (from, blob) in &sources.blobs {
        let registry = Registry::without_faults().await.unwrap();
        let watch = Arc::new(Counted::default());
        let client = client().with_progress(watch.clone());
        let sent = client.upload(&home(&registry), blob, None).await.unwrap();
        assert_eq!(sent, UploadResult::Sent, "{from}");
        assert_eq!(registry.lines().len(), 3, "{from}: {:?}", registry.lines());
        let there = registry.blob("team/copy", &blob.descriptor.digest);
        assert_eq!(there.unwrap().len(), SIZE);
        let again = client.upload(&home(&registry), blob, None).await.unwrap();
        assert_eq!(again, UploadResult::Present, "{from}");
        assert_eq!(watch.moved.load(Ordering::Relaxed), SIZE as u64);
        assert_eq!(watch.spared.load(Ordering::Relaxed), SIZE as u64);
    }
}

#[tokio::test]
async fn mounts_from_another_repository_and_uploads_if_that_is_denied() {
    let registry = Registry::without_faults().await.unwrap();
    let (neighbour, blob) = stored(&registry, SIZE).await;
    let to = home(&registry);
    for code in [401, 403, 404, 405, 500] {
        let fault = Fault::Upload(UploadFault::NoMounts(code));
        registry.set_fault(Some(fault));
        let to: Repository = registry
            .reference(&format!("team/c{code}"))
            .parse()
            .unwrap();
        let sent = client().upload(&to, &blob, Some(&neighbour)).await.unwrap();
        assert_eq!(sent, UploadResult::Sent, "{code}");
    }
    registry.set_fault(None);
    let mounted = client().upload(&to, &blob, Some(&neighbour)).await.unwrap();
    assert_eq!(mounted, UploadResult::Mounted);
    assert!(
        registry
            .blob("team/copy", &blob.descriptor.digest)
            .is_some()
    );
    // The other repository does not have the blob. The registry starts an upload instead of a
    // mount, and the client uses this upload.
    let empty: Repository = registry.reference("team/empty").parse().unwrap();
    let other: Repository = registry.reference("team/other").parse().unwrap();
    let before = registry.lines().len();
    let sent = client().upload(&other, &blob, Some(&empty)).await.unwrap();
    assert_eq!(sent, UploadResult::Sent);
    assert_eq!(registry.lines().len() - before, 3);
}

#[tokio::test]
async fn uploads_to_registries_with_unusual_protocols() {
    let sources = sources().await;
    for peculiar in [
        UploadFault::NoLocation,
        UploadFault::Nameless,
        UploadFault::RejectsChunks,
        UploadFault::OnlyParts,
        UploadFault::Small(1 << 20),
        UploadFault::Broken {
            after: 1 << 20,
            times: 2,
        },
        UploadFault::BrokenAndLost {
            after: 1 << 20,
            times: 2,
        },
        UploadFault::Failing {
            status: 503,
            times: 2,
        },
        UploadFault::Failing {
            status: 500,
            times: 1,
        },
    ] {
        for (from, blob) in &sources.blobs {
            let registry = Registry::without_faults().await.unwrap();
            registry.set_fault(Some(Fault::Upload(peculiar.clone())));
            let watch = Arc::new(Counted::default());
            let client = client().with_progress(watch.clone());
            let sent = client.upload(&home(&registry), blob, None).await;
            assert_eq!(
                sent.unwrap(),
                UploadResult::Sent,
                "{peculiar:?} from {from}"
            );
            let there = registry.blob("team/copy", &blob.descriptor.digest);
            assert_eq!(there.unwrap().len(), SIZE, "{peculiar:?} from {from}");
            let moved = watch.moved.load(Ordering::Relaxed) - watch.again.load(Ordering::Relaxed);
            assert_eq!(moved, SIZE as u64, "{peculiar:?} from {from}");
        }
    }
}

#[tokio::test]
async fn resumes_an_upload_after_the_stored_bytes() {
    let sources = sources().await;
    let registry = Registry::without_faults().await.unwrap();
    registry.set_fault(Some(Fault::Upload(UploadFault::Broken {
        after: 1 << 20,
        times: 1,
    })));
    let (_, blob) = &sources.blobs[1];
    client().upload(&home(&registry), blob, None).await.unwrap();
    let methods: Vec<_> = registry
        .seen()
        .into_iter()
        .map(|seen| seen.method)
        .collect();
    assert_eq!(methods, ["HEAD", "POST", "PUT", "GET", "PATCH", "PUT"]);
}

#[tokio::test]
async fn continues_after_half_stored_chunks() {
    let sources = sources().await;
    let registry = Registry::without_faults().await.unwrap();
    let (_, blob) = &sources.blobs[0];
    registry.set_fault(Some(Fault::Upload(UploadFault::Halved)));
    let sent = client().upload(&home(&registry), blob, None).await;
    assert_eq!(sent.unwrap(), UploadResult::Sent);
    registry.set_fault(Some(Fault::Upload(UploadFault::Exaggerated)));
    let blob = Blob::new(crate::media::LAYER_TAR, vec![1; SIZE]);
    let error = client()
        .upload(&home(&registry), &blob, None)
        .await
        .unwrap_err();
    assert_eq!(error.finding().code, codes::registry::MALFORMED, "{error}");
}

#[tokio::test]
async fn failed_uploads_return_a_reason_and_store_nothing() {
    let sources = sources().await;
    let elsewhere = format!("http://{}/v2/x/blobs/uploads/1", sources.other.host());
    let faults = [
        (
            UploadFault::Broken {
                after: 1000,
                times: 99,
            },
            codes::registry::UNREACHABLE,
        ),
        (
            UploadFault::BrokenAndLost {
                after: 1 << 20,
                times: 99,
            },
            codes::registry::UNREACHABLE,
        ),
        (UploadFault::Stalling(1000), codes::registry::STALLED),
        (
            UploadFault::Failing {
                status: 500,
                times: 99,
            },
            codes::registry::BUSY,
        ),
        (UploadFault::BlobMissing, codes::registry::MALFORMED),
        (UploadFault::Misnamed, codes::registry::DIGEST_MISMATCH),
        (
            UploadFault::Redirected(elsewhere.clone()),
            codes::registry::REDIRECT,
        ),
        (
            UploadFault::Elsewhere(elsewhere),
            codes::registry::NOT_FOUND,
        ),
        (
            UploadFault::Elsewhere("ftp://files.example.com/x".to_owned()),
            codes::registry::REDIRECT,
        ),
        (UploadFault::Small(1000), codes::registry::REFUSED),
    ];
    for ((fault, code), (from, blob)) in faults.into_iter().zip(sources.blobs.iter().cycle()) {
        let registry = Registry::without_faults().await.unwrap();
        registry.set_fault(Some(Fault::Upload(fault.clone())));
        let outcome = client().upload(&home(&registry), blob, None).await;
        let Err(error) = outcome else {
            panic!("{fault:?} from {from}: {outcome:?}");
        };
        assert_eq!(error.finding().code, code, "{fault:?} from {from}: {error}");
        if fault != UploadFault::Misnamed {
            let there = registry.blob("team/copy", &blob.descriptor.digest);
            assert!(there.is_none(), "{fault:?} from {from}");
        }
    }
}

#[tokio::test]
async fn unreadable_source_is_distinguished_from_a_failing_registry() {
    let sources = sources().await;
    let registry = Registry::without_faults().await.unwrap();
    let descriptor = sources.blobs[0].1.descriptor.clone();

    let gone = Blob::file(descriptor.clone(), FilePart::new("/nonexistent/blob", 0));
    let error = client()
        .upload(&home(&registry), &gone, None)
        .await
        .unwrap_err();
    assert_eq!(
        error.finding().code,
        codes::usage::FILE_UNREADABLE,
        "{error}"
    );

    let mut changed = tempfile::NamedTempFile::new().unwrap();
    changed.write_all(&vec![b'x'; SIZE]).unwrap();
    let changed = Blob::file(descriptor.clone(), FilePart::new(changed.path(), 0));
    let error = client()
        .upload(&home(&registry), &changed, None)
        .await
        .unwrap_err();
    assert_eq!(
        error.finding().code,
        codes::registry::DIGEST_MISMATCH,
        "{error}"
    );

    sources.other.set_fault(Some(Fault::LyingBlob));
    let (_, remote) = &sources.blobs[2];
    let error = client()
        .upload(&home(&registry), remote, None)
        .await
        .unwrap_err();
    assert_eq!(
        error.finding().code,
        codes::registry::DIGEST_MISMATCH,
        "{error}"
    );

    // An interrupted and resumed source does not affect the upload to the target.
    sources.other.set_fault(Some(Fault::BrokenBlob {
        after: 1 << 20,
        times: 1,
        ranges: Ranges::Honored,
    }));
    let sent = client().upload(&home(&registry), remote, None).await;
    assert_eq!(sent.unwrap(), UploadResult::Sent);
}
