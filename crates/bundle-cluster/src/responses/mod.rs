//! HTTP layer of all clients that limits the memory of API server responses. The limit is necessary
//! because users with write permission on an object choose its size. Lists are read in pages that
//! fit into the limit. Objects that are too large or invalid are read without their contents. All
//! other responses fail above a size limit. The module `reduce` removes fields from objects, and
//! replaces objects that are too large. The module `failure` shortens the texts of error responses.

mod failure;
mod readable;
mod reduce;
mod weight;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bundle_api::names::GROUP;
use bytes::Bytes;
use futures::future::Either;
use futures::{Stream, StreamExt as _, future, stream};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use kube::Client;
use kube::client::Body;
use kube::core::response::Status;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tower::{BoxError, service_fn};

pub use self::reduce::TOO_LARGE;
use self::reduce::{ObjectRules, Reducer, ResponseKind};
pub use self::weight::weigh;

type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// Largest memory for the parsed metadata of one object, in bytes.
const METADATA_LIMIT: usize = 8 << 20;
/// Largest memory for a parsed object of a list or watch, in bytes.
const WHOLE_LIMIT: usize = 16 << 20;
/// Largest memory for a parsed object of this project's kinds, in bytes. The reconciler has up to
/// 24 of these objects in memory at the same time.
const OWN_LIMIT: usize = 4 << 20;
/// Largest response that is neither metadata nor a list or watch, in bytes. Readers of whole
/// objects have their own limits.
const ANSWER_LIMIT: u64 = 8 << 20;
/// Largest error response, in bytes. Callers receive the response with shortened texts.
const FAILURE_LIMIT: u64 = 1 << 20;
/// Largest size of a response without its objects, in bytes.
const ENVELOPE_LIMIT: usize = 1 << 20;
/// Memory in bytes above which responses are read one at a time.
const SMALL: usize = 1 << 20;
/// Timeout for the body of a response that is not a watch.
const READ_TIMEOUT: Duration = Duration::from_secs(65);
/// Timeout from the first to the last byte of a response that has a permit. Other responses wait
/// for this permit. The API server converts all objects before it sends the first byte, so the rest
/// arrives without delay.
pub(crate) const PERMIT_TIMEOUT: Duration = Duration::from_secs(15);
/// Largest number of lists with a recorded page size.
const REMEMBERED: usize = 256;
/// Factor by which the page size is reduced after a page that does not fit.
const SMALLER: u32 = 4;

/// Request extension: keeps `fieldsV1` of all field managers in the metadata of one object.
#[derive(Debug, Clone, Copy)]
pub struct KeepFields;

/// Request extension: the response to a GET request for one object has empty `data` and
/// `binaryData`. The data are removed while the response arrives, so they are never in memory. Has
/// no effect on lists, watches, metadata, and objects of this project's kinds.
#[derive(Debug, Clone, Copy)]
pub struct WithoutData;

/// Request extension: reduces the memory limit of each object and page of a list to `OWN_LIMIT`,
/// because the caller parses whole objects.
#[derive(Debug, Clone, Copy)]
pub struct SmallPages;

/// State that all clients share: permits and page sizes.
#[derive(Debug)]
struct ResponseState {
    /// Permit for a response that is not small. The permit is released after the response is read.
    permit: Arc<Semaphore>,
    /// Last page size that did not exceed the limit, by path of the list. Contains only lists with
    /// a page that exceeded the limit.
    page_sizes: Mutex<HashMap<String, u32>>,
}

/// Returns a client that sends through `base` and limits all responses.
pub fn bounded(base: Client) -> Client {
    let namespace = base.default_namespace().to_owned();
    let memory = Arc::new(ResponseState {
        permit: Arc::new(Semaphore::new(1)),
        page_sizes: Mutex::default(),
    });
    let service = service_fn(move |request: Request<Body>| {
        let (base, memory) = (base.clone(), Arc::clone(&memory));
        async move { answer(&base, &memory, request).await }
    });
    Client::new(service, namespace)
}

async fn answer(
    base: &Client,
    memory: &ResponseState,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, BoxError> {
    let path = request.uri().path().to_owned();
    let Some(kind) = kind_of(request.method(), request.uri(), request.headers()) else {
        let rules = ObjectRules {
            keeps_data: request.extensions().get::<WithoutData>().is_none(),
            ..ObjectRules::TIMES_ONLY
        };
        let answer = base.send(request).await?;
        if !answer.status().is_success() {
            return Ok(answer.map(failure_body));
        }
        let is_reduced = is_json(answer.headers());
        let reducer = is_reduced.then(|| Reducer::new(ResponseKind::Object, rules));
        return Ok(answer.map(|body| limited_and_reduced(body, ANSWER_LIMIT, reducer)));
    };
    let mut rules = ResponseRules::of(&path, kind, request.headers());
    rules.objects.keeps_fields |= request.extensions().get::<KeepFields>().is_some();
    if request.extensions().get::<SmallPages>().is_some() {
        rules.objects.limit = rules.objects.limit.min(OWN_LIMIT);
    }
    match kind {
        ResponseKind::Watch => {
            let answer = base.send(request).await?;
            if !answer.status().is_success() {
                return Ok(answer.map(failure_body));
            }
            let reducer = Reducer::new(kind, rules.objects);
            Ok(answer.map(|body| watch_events(body, reducer, path)))
        }
        ResponseKind::List => page(base, memory, request, rules).await,
        ResponseKind::Object => {
            let answer = base.send(request).await?;
            match read(answer, memory, kind, rules, &path).await? {
                Read::Whole(answer, _) => Ok(answer),
                Read::TooLarge => Err(too_large(&path)),
            }
        }
    }
}

/// Reads one page of a list. If the page exceeds the limit, retries with fewer objects.
async fn page(
    base: &Client,
    memory: &ResponseState,
    request: Request<Body>,
    rules: ResponseRules,
) -> Result<Response<ResponseBody>, BoxError> {
    let (head, _) = request.into_parts();
    let path = head.uri.path().to_owned();
    let wanted = query(&head.uri, "limit").and_then(|limit| limit.parse::<u32>().ok());
    let mut size = wanted.map(|wanted| memory.page_size(&path).unwrap_or(wanted).min(wanted));
    loop {
        let mut request = Request::builder()
            .method(head.method.clone())
            .uri(match size {
                Some(size) => with_limit(&head.uri, size)?,
                None => head.uri.clone(),
            })
            .body(Body::empty())?;
        request.headers_mut().extend(head.headers.clone());
        let answer = base.send(request).await?;
        match read(answer, memory, ResponseKind::List, rules, &path).await? {
            Read::Whole(answer, weight) => {
                if let (Some(size), Some(wanted)) = (size, wanted) {
                    let fits_twice = weight < rules.objects.limit / 2;
                    memory.remember_page_size(
                        &path,
                        if fits_twice { size * 2 } else { size },
                        wanted,
                    );
                }
                return Ok(answer);
            }
            Read::TooLarge => match size {
                Some(larger) if larger > 1 => {
                    tracing::debug!(
                        path,
                        larger,
                        "a page of a list exceeds the memory limit and is read again with fewer objects"
                    );
                    size = Some((larger / SMALLER).max(1));
                }
                _ => return Err(too_large(&path)),
            },
        }
    }
}

enum Read {
    /// Response, and the memory of the parsed response in bytes.
    Whole(Response<ResponseBody>, usize),
    TooLarge,
}

/// Reads and reduces a response. The texts of an error response are shortened.
async fn read(
    answer: Response<Body>,
    memory: &ResponseState,
    kind: ResponseKind,
    rules: ResponseRules,
    path: &str,
) -> Result<Read, BoxError> {
    if !answer.status().is_success() {
        return Ok(Read::Whole(answer.map(failure_body), 0));
    }
    let (head, mut body) = answer.into_parts();
    let mut reducer = Reducer::new(kind, rules.objects);
    let mut turn = None;
    let small = receive(&mut body, &mut reducer, SMALL);
    if !tokio::time::timeout(READ_TIMEOUT, small).await?? {
        let most = rules.objects.limit + ENVELOPE_LIMIT;
        if reducer.weight() > most {
            return Ok(Read::TooLarge);
        }
        let permit = Arc::clone(&memory.permit).acquire_owned();
        turn = tokio::time::timeout(READ_TIMEOUT, permit).await?.ok();
        let rest = receive(&mut body, &mut reducer, most);
        if !tokio::time::timeout(PERMIT_TIMEOUT, rest).await?? {
            return Ok(Read::TooLarge);
        }
    }
    let is_complete = report(&mut reducer, path);
    if rules.is_complete && !is_complete {
        return Ok(Read::TooLarge);
    }
    let weight = reducer.weight();
    let body = body_with_permit(reducer.take(), turn);
    Ok(Read::Whole(Response::from_parts(head, body), weight))
}

/// Reads the body to its end, or until the weight of `reducer` exceeds `most`. Returns true if the
/// end of the body was reached.
async fn receive(body: &mut Body, reducer: &mut Reducer, most: usize) -> Result<bool, BoxError> {
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        reducer.push(&data)?;
        if reducer.weight() > most {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns a response that releases its permit after the response is read or dropped.
fn body_with_permit(bytes: Vec<u8>, turn: Option<OwnedSemaphorePermit>) -> ResponseBody {
    let frame = future::ready(Ok(Frame::data(bytes.into())));
    let frames = stream::once(frame).inspect(move |_| {
        let _held = &turn;
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Returns the events of a watch, after reducing each event.
fn watch_events(body: Body, mut reducer: Reducer, path: String) -> ResponseBody {
    let frames = body.into_data_stream().map(move |data| {
        let data = data?;
        let mut bytes = Vec::new();
        for line in data.split_inclusive(|&byte| byte == b'\n') {
            reducer.push(line)?;
            bytes.append(&mut reducer.take());
        }
        report(&mut reducer, &path);
        Ok(Frame::data(bytes.into()))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Returns the data of a body. Fails if the body is not complete within [`READ_TIMEOUT`].
fn with_read_timeout(body: Body) -> impl Stream<Item = Result<Bytes, BoxError>> + Send {
    let data = Box::pin(body.into_data_stream());
    let expired = Box::pin(tokio::time::sleep(READ_TIMEOUT));
    stream::unfold(Some((data, expired)), |reading| async move {
        let (mut data, expired) = reading?;
        match future::select(data.next(), expired).await {
            Either::Left((None, _)) => None,
            Either::Left((Some(piece), expired)) => {
                let piece = piece.map_err(Into::into);
                Some((piece, Some((data, expired))))
            }
            Either::Right(_) => {
                let seconds = READ_TIMEOUT.as_secs();
                let why = format!("the response of the API server did not end within {seconds} s");
                Some((Err(why.into()), None))
            }
        }
    })
}

/// Returns the body of an error response with shortened texts. Reading the body fails if the
/// response has more than [`FAILURE_LIMIT`] bytes.
fn failure_body(body: Body) -> ResponseBody {
    let received = limited_and_reduced(body, FAILURE_LIMIT, None);
    let frame = async move {
        let body = received.collect().await?.to_bytes();
        Ok::<_, BoxError>(Frame::data(failure::shortened(body)))
    };
    StreamBody::new(stream::once(frame)).boxed_unsync()
}

/// Returns the body after `reducer`, if present, has reduced it. Reading the body fails after more
/// than `limit` received bytes.
fn limited_and_reduced(body: Body, limit: u64, mut reducer: Option<Reducer>) -> ResponseBody {
    let mut length = 0;
    let frames = with_read_timeout(body).map(move |data| {
        let data = data?;
        length += data.len() as u64;
        if length > limit {
            return Err(
                format!("the response of the API server has more than {limit} bytes").into(),
            );
        }
        let Some(reducer) = &mut reducer else {
            return Ok(Frame::data(data));
        };
        reducer.push(&data)?;
        Ok(Frame::data(reducer.take().into()))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Logs the names of objects that were too large or invalid. Returns true if all objects were read
/// completely.
fn report(reducer: &mut Reducer, path: &str) -> bool {
    let too_large = reducer.take_too_large();
    for name in &too_large {
        tracing::warn!(
            path,
            name,
            "an object is too large or cannot be parsed: it is read without its contents"
        );
    }
    too_large.is_empty()
}

fn too_large(path: &str) -> BoxError {
    Box::new(kube::Error::Api(Box::new(Status {
        code: StatusCode::PAYLOAD_TOO_LARGE.as_u16(),
        message: format!("the response of the API server to {path} exceeds the memory limit"),
        ..Status::default()
    })))
}

/// Returns true if the query of a GET request requests a watch.
pub fn is_watch(uri: &Uri) -> bool {
    query(uri, "watch").is_some_and(|watch| matches!(watch, "true" | "1"))
}

/// Returns the kind of a response that is reduced: list, watch, metadata of one object, or whole
/// object of this project's kinds. Returns `None` for all other responses.
fn kind_of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Option<ResponseKind> {
    let is_metadata = is_metadata(headers);
    if method == Method::GET {
        if is_watch(uri) {
            return Some(ResponseKind::Watch);
        }
        if is_collection(uri.path()) {
            return Some(ResponseKind::List);
        }
        if is_own_object(uri.path()) {
            return Some(ResponseKind::Object);
        }
    }
    is_metadata.then_some(ResponseKind::Object)
}

/// Rules for a response that is reduced.
#[derive(Debug, Clone, Copy)]
struct ResponseRules {
    objects: ObjectRules,
    /// True if the whole response fails when one object is too large.
    is_complete: bool,
}

impl ResponseRules {
    fn of(path: &str, kind: ResponseKind, headers: &HeaderMap) -> Self {
        let is_metadata = is_metadata(headers);
        let is_own = path.starts_with(&format!("/apis/{GROUP}/"));
        Self {
            objects: ObjectRules {
                limit: if is_metadata {
                    METADATA_LIMIT
                } else if is_own {
                    OWN_LIMIT
                } else {
                    WHOLE_LIMIT
                },
                // `fieldsV1` of other managers is needed in two cases. The comparison of webhook
                // registrations reads all entries, and the entry of the Job controller shows the
                // state of a Job.
                keeps_fields: path.starts_with("/apis/admissionregistration.k8s.io/")
                    || (path.starts_with("/apis/batch/") && path.ends_with("/jobs")),
                keeps_data: true,
                is_checked: true,
            },
            is_complete: !is_metadata
                && (kind == ResponseKind::Object || kind == ResponseKind::List && !is_own),
        }
    }
}

fn is_metadata(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("as=PartialObjectMetadata"))
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| kind.starts_with("application/json"))
}

/// Returns true if the path lists all objects of a kind, in one or all namespaces.
fn is_collection(path: &str) -> bool {
    let mut segments = path.trim_matches('/').split('/');
    let skipped = match segments.next() {
        Some("api") => 1,
        Some("apis") => 2,
        _ => return false,
    };
    let rest: Vec<&str> = segments.skip(skipped).collect();
    matches!(rest[..], [_] | ["namespaces", _, _])
}

/// Returns true if the path is the path of an object of this project's kinds.
fn is_own_object(path: &str) -> bool {
    let mut segments = path.trim_matches('/').split('/');
    segments.next() == Some("apis") && segments.next() == Some(GROUP) && segments.count() == 3
}

fn query<'a>(uri: &'a Uri, key: &str) -> Option<&'a str> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs
        .filter_map(|pair| pair.split_once('='))
        .find_map(|(found, value)| (found == key).then_some(value))
}

fn with_limit(uri: &Uri, limit: u32) -> Result<Uri, http::Error> {
    let pairs = uri.query().unwrap_or_default().split('&');
    let others = pairs.filter(|pair| !pair.is_empty() && !pair.starts_with("limit="));
    let mut text = format!("{}?limit={limit}", uri.path());
    for pair in others {
        text.push('&');
        text.push_str(pair);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(text.parse().map_err(http::Error::from)?);
    Uri::from_parts(parts).map_err(http::Error::from)
}

impl ResponseState {
    fn page_size(&self, path: &str) -> Option<u32> {
        let sizes = self.page_sizes.lock();
        let sizes = sizes.unwrap_or_else(PoisonError::into_inner);
        sizes.get(path).copied()
    }

    fn remember_page_size(&self, path: &str, size: u32, wanted: u32) {
        let sizes = self.page_sizes.lock();
        let mut sizes = sizes.unwrap_or_else(PoisonError::into_inner);
        if size >= wanted {
            sizes.remove(path);
            return;
        }
        if sizes.len() >= REMEMBERED {
            sizes.clear();
        }
        sizes.insert(path.to_owned(), size);
    }
}

#[cfg(test)]
mod tests;
