//! Whole objects from the API server, with bounded memory. Users choose the size of objects, and a
//! parsed tree can need a hundred times the memory of its text. Objects above `SMALL` are
//! received and parsed one at a time. The parent module reads metadata.

use bundle_core::footprint::Footprint;
use bundle_core::rights::DryRunObject;
use bytes::Bytes;
use http::Response;
use http_body_util::BodyExt as _;
use kube::api::DynamicObject;
use kube::client::Body;
use kube::core::response::Status;
use serde::Deserialize;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::blocking;
use crate::responses::PERMIT_TIMEOUT;

/// Size in bytes up to which objects need no permit.
const SMALL: usize = 64 << 10;
/// Largest object in bytes: the API server stores 1.5 MiB and accepts requests of 3 MiB.
const MOST_BYTES: usize = 3 << 20;
/// Largest memory of a parsed object, in bytes.
const MOST_MEMORY: u64 = 16 << 20;
/// Largest memory of objects that are parsed at the same time, in bytes.
const MOST_PARSED_MEMORY: u64 = 2 * MOST_MEMORY;

/// Permit to receive and parse an object above `SMALL`. Only one object at a time has this permit.
static TURN: Semaphore = Semaphore::const_new(1);

/// Returns the object in a response to a GET. Returns `None` if the object does not exist.
pub async fn receive(answer: Response<Body>) -> Result<Option<DynamicObject>, kube::Error> {
    let code = answer.status();
    // The body is not parsed, because the server responds with plain text for an unknown kind.
    if code == http::StatusCode::NOT_FOUND {
        return Ok(None);
    }
    let (bytes, turn) = read(answer.into_body()).await?;
    if !code.is_success() {
        return Err(failure(code, &bytes));
    }
    if turn.is_none() {
        return parse(&bytes).map(Some);
    }
    let object = blocking::run(|| parse(&bytes));
    drop(turn);
    object.map(Some)
}

/// Returns the error in the body of a response that is not successful.
fn failure(code: http::StatusCode, body: &[u8]) -> kube::Error {
    let status = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| Status {
        code: code.as_u16(),
        message: String::from_utf8_lossy(&body[..body.len().min(512)]).into_owned(),
        ..Status::default()
    });
    kube::Error::Api(Box::new(status))
}

/// Reads a response. Also returns a permit if the response is larger than `SMALL`.
async fn read(mut body: Body) -> Result<(Vec<u8>, Option<SemaphorePermit<'static>>), kube::Error> {
    let too_large = || too_large(&format!("has more than {} MiB", MOST_BYTES >> 20));
    let mut bytes = Vec::new();
    let Some(piece) = append(&mut body, &mut bytes, SMALL).await? else {
        return Ok((bytes, None));
    };
    let turn = TURN.acquire().await.ok();
    if bytes.len() + piece.len() > MOST_BYTES {
        return Err(too_large());
    }
    bytes.extend_from_slice(&piece);
    let rest = append(&mut body, &mut bytes, MOST_BYTES);
    match tokio::time::timeout(PERMIT_TIMEOUT, rest).await {
        Ok(Ok(None)) => Ok((bytes, turn)),
        Ok(Ok(Some(_))) => Err(too_large()),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(kube::Error::Api(Box::new(Status {
            code: http::StatusCode::GATEWAY_TIMEOUT.as_u16(),
            message: format!(
                "a large response of the API server did not end within {} s",
                PERMIT_TIMEOUT.as_secs()
            ),
            ..Status::default()
        }))),
    }
}

/// Appends the response to `bytes`, up to a total of `most` bytes. Returns the piece that would
/// exceed `most`, or `None` at the end of the response.
async fn append(
    body: &mut Body,
    bytes: &mut Vec<u8>,
    most: usize,
) -> Result<Option<Bytes>, kube::Error> {
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if bytes.len() + data.len() > most {
            return Ok(Some(data));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(None)
}

/// Text of an object that can be parsed as [`DryRunObject`] under a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectText {
    bytes: Vec<u8>,
    weight: Footprint,
}

/// Uid and resource version of an object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ObjectVersion {
    /// Uid of the object.
    pub(super) uid: String,
    /// `resourceVersion` of the object.
    pub(super) resource_version: String,
}

impl ObjectText {
    /// Reads the response to a GET or to a dry run. Returns `None` if the object does not exist.
    /// Fails with [`kube::Error::Api`] if the response is not successful, or if the object is too
    /// large.
    pub(super) async fn receive_response(
        response: Response<Body>,
    ) -> Result<Option<Self>, kube::Error> {
        let code = response.status();
        if code == http::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if !code.is_success() {
            let (bytes, _) = read(response.into_body()).await?;
            return Err(failure(code, &bytes));
        }
        Self::receive(response.into_body()).await.map(Some)
    }

    /// Returns uid and resource version of the object.
    pub(super) fn version(&self) -> Result<ObjectVersion, kube::Error> {
        #[derive(Deserialize)]
        struct VersionedObject {
            metadata: ObjectVersion,
        }
        let object: VersionedObject =
            serde_json::from_slice(&self.bytes).map_err(kube::Error::SerdeError)?;
        Ok(object.metadata)
    }

    /// Reads the response to a successful dry run. Fails with [`kube::Error::Api`] if the object is
    /// too large.
    pub async fn receive(body: Body) -> Result<Self, kube::Error> {
        let (bytes, turn) = read(body).await?;
        let weigh = || DryRunObject::footprint(&bytes).map_err(kube::Error::SerdeError);
        let weight = if turn.is_some() {
            blocking::run(weigh)?
        } else {
            weigh()?
        };
        allow(weight)?;
        Ok(Self { bytes, weight })
    }

    /// Parses all `texts` and passes the objects to `work`. If a text is large, no other large
    /// object is parsed at the same time. Fails if the objects together need more memory than
    /// [`MOST_PARSED_MEMORY`].
    pub async fn with_parsed<T>(
        texts: &[&Self],
        work: impl FnOnce(&[DryRunObject]) -> T,
    ) -> Result<T, kube::Error> {
        let weight = texts.iter().map(|text| text.weight.0).sum::<u64>();
        if weight > MOST_PARSED_MEMORY {
            return Err(too_large(&format!(
                "and the results that it is compared with need {} MiB of memory, and at most {} MiB are available",
                weight.div_ceil(1 << 20),
                MOST_PARSED_MEMORY >> 20
            )));
        }
        let parsed = || {
            let objects = texts.iter().map(|text| DryRunObject::parse(&text.bytes));
            let objects: Result<Vec<_>, _> = objects.collect();
            objects.map(|objects| work(&objects))
        };
        let result = if texts.iter().all(|text| text.bytes.len() <= SMALL) {
            parsed()
        } else {
            let _turn = TURN.acquire().await.ok();
            blocking::run(parsed)
        };
        result.map_err(kube::Error::SerdeError)
    }
}

fn parse(bytes: &[u8]) -> Result<DynamicObject, kube::Error> {
    allow(serde_json::from_slice(bytes).map_err(kube::Error::SerdeError)?)?;
    serde_json::from_slice(bytes).map_err(kube::Error::SerdeError)
}

fn allow(Footprint(weight): Footprint) -> Result<(), kube::Error> {
    if weight > MOST_MEMORY {
        return Err(too_large(&format!(
            "needs {} MiB of memory, and at most {} MiB are available for one object",
            weight.div_ceil(1 << 20),
            MOST_MEMORY >> 20
        )));
    }
    Ok(())
}

fn too_large(why: &str) -> kube::Error {
    kube::Error::Api(Box::new(Status {
        code: http::StatusCode::PAYLOAD_TOO_LARGE.as_u16(),
        message: format!("the object is too large to be read: it {why}"),
        ..Status::default()
    }))
}

#[cfg(test)]
mod tests {
    use futures::{StreamExt as _, future, stream};
    use http::Request;
    use http_body::Frame;
    use http_body_util::StreamBody;
    use kube::Client;
    use serde_json::json;
    use tokio::sync::Mutex;
    use tower::{BoxError, service_fn};

    use super::*;

    /// Lock of the tests with large objects. These tests check that each permit of [`TURN`] is
    /// released, and all tests of the process share [`TURN`].
    static LARGE_OBJECTS: Mutex<()> = Mutex::const_new(());

    async fn receive_text(code: u16, text: String) -> Result<Option<DynamicObject>, kube::Error> {
        let answer = Response::builder().status(code);
        receive(answer.body(Body::from(text.into_bytes())).unwrap()).await
    }

    fn object(data: &serde_json::Value) -> String {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web"}, "data": data})
            .to_string()
    }

    #[tokio::test]
    async fn reads_objects_that_are_large_as_text_alone() {
        let _alone = LARGE_OBJECTS.lock().await;
        for size in [10, SMALL, 1 << 20] {
            let text = object(&json!({"a": "x".repeat(size)}));
            let read = receive_text(200, text).await.unwrap().unwrap();
            assert_eq!(read.data["data"]["a"].as_str().map(str::len), Some(size));
        }
        assert_eq!(TURN.available_permits(), 1);
    }

    #[tokio::test]
    async fn refuses_objects_that_are_too_large_as_text_or_as_a_tree() {
        let _alone = LARGE_OBJECTS.lock().await;
        let maps = vec![json!({"a": 0}); 100_000];
        for (text, told) in [
            (object(&json!(maps)), "MiB of memory"),
            (
                object(&json!({"a": "x".repeat(MOST_BYTES)})),
                "more than 3 MiB",
            ),
        ] {
            let error = receive_text(200, text).await.unwrap_err();
            assert!(crate::chain(&error).contains(told), "{error}");
        }
        assert_eq!(TURN.available_permits(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn response_that_stalls_releases_its_permit() {
        let _alone = LARGE_OBJECTS.lock().await;
        let service = service_fn(|_: Request<Body>| {
            let data = Bytes::from(vec![b' '; 2 * SMALL]);
            let pieces = stream::once(future::ready(Ok::<_, BoxError>(Frame::data(data))));
            let body = StreamBody::new(pieces.chain(stream::pending()));
            future::ready(Ok::<_, BoxError>(Response::new(body)))
        });
        let client = Client::new(service, "default");
        let request = Request::get("/").body(Body::empty()).unwrap();
        let answer = client.send(request).await.unwrap();
        let error = receive(answer).await.unwrap_err();
        assert!(crate::object::is_passing(&error), "{error}");
        assert_eq!(TURN.available_permits(), 1);
    }

    #[tokio::test]
    async fn distinguishes_missing_objects_from_other_errors() {
        let missing = receive_text(404, "404 page not found".to_owned()).await;
        assert!(missing.unwrap().is_none());
        let refused = json!({"kind": "Status", "code": 403, "message": "no", "reason": "Forbidden", "status": "Failure"});
        let refused = receive_text(403, refused.to_string()).await.unwrap_err();
        assert!(crate::object::is_forbidden(&refused));
        let broken = receive_text(502, "bad gateway".to_owned()).await;
        assert!(crate::object::is_passing(&broken.unwrap_err()));
    }

    #[tokio::test]
    async fn texts_are_parsed_if_each_is_small_enough_as_a_tree() {
        let _alone = LARGE_OBJECTS.lock().await;
        let text = |data: serde_json::Value| Body::from(object(&data).into_bytes());
        let large = "x".repeat(1 << 20);
        let one = ObjectText::receive(text(json!({"a": large})))
            .await
            .unwrap();
        let other = ObjectText::receive(text(json!({"a": 1}))).await.unwrap();
        let texts = [&one, &other, &one];
        let same = ObjectText::with_parsed(&texts, |objects| {
            objects[0] == objects[2] && objects[0] != objects[1]
        });
        assert!(same.await.unwrap());
        for (data, told) in [
            (json!(vec![json!({"a": 0}); 100_000]), "MiB of memory"),
            (json!({"a": "x".repeat(MOST_BYTES)}), "more than 3 MiB"),
        ] {
            let error = ObjectText::receive(text(data)).await.unwrap_err();
            assert!(crate::chain(&error).contains(told), "{error}");
        }
        // Two results of this size fit into the memory limit, three do not.
        let maps = json!(vec![json!({"a": 0}); 19_000]);
        let large = ObjectText::receive(text(maps)).await.unwrap();
        assert!(large.weight.0 > 12 << 20, "{:?}", large.weight);
        let count = async |count| ObjectText::with_parsed(&vec![&large; count], <[_]>::len).await;
        assert_eq!(count(2).await.unwrap(), 2);
        let error = count(3).await.unwrap_err();
        assert!(crate::chain(&error).contains("at most 32 MiB"), "{error}");
        assert_eq!(TURN.available_permits(), 1);
    }
}
