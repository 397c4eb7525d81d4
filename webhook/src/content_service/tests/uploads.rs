use std::time::Duration;

use axum::body::Bytes;
use bundle_core::plan::bundle::upload::UploadRejection;
use bundle_oci::Limits;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;

use super::*;
use crate::uploads::UPLOADS;
use crate::uploads::target::{TargetError, UploadTarget, UploadTargets};

const UID: &str = "8f7d3f0e-0000-4000-8000-000000000001";
const PATH: &str = "/uploads/web.tgz";

fn gzip(content: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    io::Write::write_all(&mut encoder, content.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

impl UploadTargets for FakeArchives {
    fn find<'a>(
        &'a self,
        bundle: &'a KubeName,
        caller: &'a Requester,
    ) -> BoxFuture<'a, Result<UploadTarget, TargetError>> {
        let unpacked = |is_cached| UploadTarget {
            uid: "2".to_owned(),
            unpacked: Some(Digest::of(&gzip("first"))),
            is_cached,
            deployment: None,
        };
        let found = match &**bundle {
            "web" => Ok(UploadTarget {
                uid: UID.to_owned(),
                unpacked: None,
                is_cached: false,
                deployment: None,
            }),
            "unpacked" => Ok(unpacked(true)),
            "lost" => Ok(unpacked(false)),
            "image" => Err(UploadRejection::OtherSource("image").into()),
            "other" => Err(TargetError::OtherRequester {
                bundle: bundle.clone(),
                user: caller.user.clone(),
                requester: "eve".to_owned(),
            }),
            _ => Err(TargetError::NoBundle(bundle.clone())),
        };
        Box::pin(async move { found })
    }

    fn uploaded(&self, bundle: &KubeName, _: &UploadTarget) {
        self.uploaded.lock().unwrap().push(bundle.to_string());
    }
}

impl Service {
    /// Returns status and text of the response to an upload of ana.
    async fn put(&self, path: &str, headers: &[(&str, &str)], content: Body) -> (u16, String) {
        let headers = [&[("authorization", "Bearer ana")], headers].concat();
        let response = self.send(("PUT", path), &headers, content).await;
        let status = response.status().as_u16();
        (status, body(response).await)
    }
}

#[tokio::test]
async fn upload_is_stored_until_the_content_is_unpacked() {
    let (service, _leading) = Service::leading();
    let put = async |bundle: &str, content: &str| {
        let path = format!("/uploads/{bundle}.tgz");
        service.put(&path, &[], gzip(content).into()).await
    };
    let created = (201, String::new());
    let identical = (204, String::new());
    let changed = "bundle has already been unpacked, cannot change content of existing bundle\n";
    let changed = (409, changed.to_owned());
    assert_eq!(put("web", "first").await, created);
    assert_eq!(put("web", "first").await, identical);
    assert_eq!(put("web", "second").await, created);
    let digest = Digest::of(&gzip("second"));
    assert_eq!(service.uploads.digest(UID), Some(digest));
    assert_eq!(put("unpacked", "first").await, identical);
    assert_eq!(put("unpacked", "second").await, changed);
    assert_eq!(put("lost", "second").await, changed);
    assert_eq!(put("lost", "first").await, created);
    assert_eq!(*service.uploaded.lock().unwrap(), ["web", "web", "lost"]);
}

#[tokio::test]
async fn all_other_uploads_are_rejected() {
    let (service, leading) = Service::leading();
    let content = || Body::from(gzip("content"));
    for (path, status, expected) in [
        ("/uploads/none.tgz", 404, "Bundle none does not exist\n"),
        ("/uploads/", 404, "no such path\n"),
        ("/uploads/a/b.tgz", 404, "no such path\n"),
        (
            "/uploads/image.tgz",
            409,
            "bundle source type is \"image\"; expected \"upload\"\n",
        ),
        (
            "/uploads/other.tgz",
            403,
            "ana cannot upload content of Bundle other, which eve requested: upload as eve, or get permission to impersonate this user and its groups\n",
        ),
        ("/bundles/web.tgz", 405, "only GET and HEAD\n"),
    ] {
        let found = service.put(path, &[], content()).await;
        assert_eq!(found, (status, expected.to_owned()), "{path}");
    }
    for (headers, status, expected) in [
        (
            &[("authorization", "Bearer eve")][..],
            403,
            "eve must have permission update on /uploads/web.tgz: bind ClusterRole bundle-uploader\n",
        ),
        (&[], 401, "a valid bearer token is required\n"),
    ] {
        let response = service.send(("PUT", PATH), headers, content()).await;
        assert_eq!(response.status().as_u16(), status);
        assert_eq!(body(response).await, expected);
    }
    let headers = [("authorization", "Bearer ana")];
    let response = service.respond(("GET", PATH), &headers).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers()["allow"], "PUT");
    drop(leading);
    let (status, told) = service.put(PATH, &[], content()).await;
    assert_eq!(status, 503);
    assert!(told.starts_with("this replica is not the leader"), "{told}");
    assert_eq!(service.uploads.digest(UID), None);
}

#[tokio::test]
async fn rejected_bodies_leave_nothing() {
    let (service, _leading) = Service::leading();
    let most = Limits::default().layer;
    let endless = || {
        let piece = Ok::<_, io::Error>(Bytes::from(vec![0x1f; 1 << 20]));
        Body::from_stream(stream::iter(std::iter::repeat_with(move || {
            Ok::<_, io::Error>(piece.as_ref().unwrap().clone())
        })))
    };
    let broken = || {
        let pieces = [Ok(Bytes::from(gzip("a"))), Err(io::Error::other("reset"))];
        Body::from_stream(stream::iter(pieces))
    };
    let too_large = format!(
        "the archive is larger than the limit of {} MiB\n",
        most >> 20
    );
    let announced = (most + 1).to_string();
    for (headers, content, status, expected) in [
        (
            &[][..],
            Body::from("<html>"),
            400,
            "the body is not a gzipped tar archive\n",
        ),
        (
            &[],
            Body::empty(),
            400,
            "the body is not a gzipped tar archive\n",
        ),
        (
            &[("content-length", &*announced)],
            endless(),
            413,
            &*too_large,
        ),
        (&[], endless(), 413, &*too_large),
        (
            &[("content-length", "1000")],
            endless(),
            400,
            "the archive is longer than its Content-Length\n",
        ),
        (&[], broken(), 400, "the upload was interrupted\n"),
    ] {
        let found = service.put(PATH, headers, content).await;
        assert_eq!(found, (status, expected.to_owned()), "{headers:?}");
        assert_eq!(service.uploads.digest(UID), None);
    }
    assert_eq!(*service.uploaded.lock().unwrap(), Vec::<String>::new());
    // The failed uploads have released all space.
    let arriving = service.uploads.begin("ana").unwrap();
    let reserved = service.uploads.reserve(&arriving.space(), UPLOADS / 2);
    reserved.unwrap();
}

#[tokio::test]
async fn permission_that_is_withdrawn_during_an_upload_is_required_at_its_end() {
    let (service, _leading) = Service::leading();
    let withdrawn = service.withdrawn.clone();
    let content = stream::once(async move {
        withdrawn.store(true, Ordering::SeqCst);
        Ok::<_, io::Error>(Bytes::from(gzip("content")))
    });
    let (status, told) = service.put(PATH, &[], Body::from_stream(content)).await;
    assert_eq!(status, 403, "{told}");
    assert_eq!(service.uploads.digest(UID), None);
    assert_eq!(*service.uploaded.lock().unwrap(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn upload_below_the_minimum_rate_is_rejected() {
    for pause in [Duration::from_secs(1), Duration::from_secs(3600)] {
        let (service, _leading) = Service::leading();
        let pieces = stream::unfold((), move |()| async move {
            tokio::time::sleep(pause).await;
            Some((Ok::<_, io::Error>(Bytes::from_static(b"x")), ()))
        });
        // The runtime does not advance the clock while other threads work. Therefore the test
        // advances the clock.
        let clock = async {
            loop {
                tokio::time::advance(Duration::from_secs(1)).await;
                tokio::task::yield_now().await;
            }
        };
        let (status, told) = tokio::select! {
            found = service.put(PATH, &[], Body::from_stream(pieces)) => found,
            () = clock => unreachable!(),
        };
        assert_eq!(status, 408);
        assert_eq!(
            told,
            "the upload is too slow: send at least 32 KiB a second\n"
        );
    }
}

#[tokio::test]
async fn one_requester_uses_half_of_the_space_for_uploads() {
    let (service, _leading) = Service::leading();
    let other = service.uploads.begin("ana").unwrap();
    let reserved = service.uploads.reserve(&other.space(), UPLOADS / 2);
    reserved.unwrap();
    let (status, told) = service.put(PATH, &[], gzip("content").into()).await;
    assert_eq!(status, 507);
    assert!(
        told.starts_with("no space is left for this upload"),
        "{told}"
    );
}
