//! Request handling: the part of the OCI distribution protocol that clients use, and the injected
//! faults.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::{Value, json};

use super::blobs::{blob, huge};
use super::call::{Call, Query, error, status};
use super::uploads::Upload;
use super::{Fault, Login, RecordedRequest, Shared, lock, rounds};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LARGEST: usize = 128 << 20;

pub(super) async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    let said = |name| {
        let value = parts.headers.get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let authorization = said(header::AUTHORIZATION);
    if path != "/v2/" {
        lock(&shared.seen).push(RecordedRequest {
            method: parts.method.to_string(),
            path: parts.uri.to_string(),
            authorization: authorization.clone(),
            range: said(header::RANGE),
        });
    }
    rounds::wait_for_end(&shared).await;
    if let Some(fault) = general_fault(&shared, &path).await {
        return fault;
    }
    let query = Query(parts.uri.query().unwrap_or_default().to_owned());
    if path == "/token" {
        return token(&shared, &query, authorization.as_deref());
    }
    let Some(rest) = path.strip_prefix("/v2/") else {
        return error(StatusCode::NOT_FOUND, "no such page");
    };
    if let Some(refusal) = refuse(&shared, rest, &parts.method, authorization.as_deref()) {
        return refusal;
    }
    if rest.is_empty() {
        return StatusCode::OK.into_response();
    }
    if let Some((repository, name)) = rest.rsplit_once("/blobs/uploads/") {
        let call = Upload {
            shared: &shared,
            method: &parts.method,
            headers: &parts.headers,
            query: &query,
            repository,
            name,
        };
        return call.answer(body).await;
    }
    let Ok(body) = to_bytes(body, LARGEST).await else {
        return error(StatusCode::PAYLOAD_TOO_LARGE, "too large");
    };
    if rest.contains("/referrers/") {
        until_released(&shared).await;
    }
    for (kind, handler) in KINDS {
        if let Some((repository, name)) = rest.rsplit_once(kind) {
            let call = Call {
                shared: &shared,
                method: &parts.method,
                headers: &parts.headers,
                query: &query,
                repository,
                name,
                body,
            };
            return handler(&call);
        }
    }
    error(StatusCode::NOT_FOUND, "no such page")
}

type Handler = fn(&Call<'_>) -> Response;
const KINDS: [(&str, Handler); 4] = [
    ("/blobs/", blob),
    ("/manifests/", manifest),
    ("/referrers/", referrers),
    ("/tags/", tags),
];

/// Waits until the fault is no longer [`Fault::HeldReferrers`].
async fn until_released(shared: &Shared) {
    while matches!(&*lock(&shared.fault), Some(Fault::HeldReferrers)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Applies faults that affect every request. Returns the response of the fault; `None` if the
/// request is handled normally. With [`Fault::NoResponse`] and [`Fault::NoContent`], never returns.
async fn general_fault(shared: &Shared, path: &str) -> Option<Response> {
    let busy = {
        let mut fault = lock(&shared.fault);
        match &mut *fault {
            Some(Fault::Busy { status, times }) if *times > 0 => {
                *times -= 1;
                Some((*status, "0".to_owned()))
            }
            Some(Fault::BusyUntil {
                status,
                times,
                retry_after,
            }) if *times > 0 => {
                *times -= 1;
                Some((*status, retry_after.clone()))
            }
            Some(Fault::NoResponse) => None,
            Some(Fault::NoContent) if path != "/v2/" => None,
            Some(Fault::Html) => {
                let page = "<!doctype html><title>Please log in</title>";
                return Some(([(header::CONTENT_TYPE, "text/html")], page).into_response());
            }
            _ => return None,
        }
    };
    match busy {
        Some((code, retry_after)) => {
            let mut response = error(status(code), "slow down");
            if let Ok(value) = retry_after.parse() {
                response.headers_mut().insert(header::RETRY_AFTER, value);
            }
            Some(response)
        }
        None => std::future::pending().await,
    }
}

fn basic(login: &Login) -> String {
    format!(
        "Basic {}",
        STANDARD.encode(format!("{}:{}", login.user, login.password))
    )
}

fn token(shared: &Shared, query: &Query, authorization: Option<&str>) -> Response {
    let Some(login) = &shared.settings.login else {
        return error(StatusCode::NOT_FOUND, "no tokens here");
    };
    if authorization != Some(basic(login).as_str()) {
        return error(StatusCode::UNAUTHORIZED, "wrong name or password");
    }
    let scope = query.get("scope").unwrap_or_default();
    let mut expires_in = 300;
    if let Some(Fault::HugeTokens { after }) = &mut *lock(&shared.fault) {
        let Some(left) = after.checked_sub(1) else {
            return " ".repeat(1 << 20).into_response();
        };
        *after = left;
        expires_in = 1;
    }
    json!({ "token": STANDARD.encode(scope), "expires_in": expires_in })
        .to_string()
        .into_response()
}

/// Returns a response with status 401 if the request lacks the required login; with
/// [`Fault::HiddenContent`], the status is 404. Returns `None` if the login is correct, or if the
/// registry requires no login.
fn refuse(
    shared: &Shared,
    rest: &str,
    method: &Method,
    authorization: Option<&str>,
) -> Option<Response> {
    let login = shared.settings.login.as_ref()?;
    let repository = std::iter::once("/blobs/uploads/")
        .chain(KINDS.iter().map(|(kind, _)| *kind))
        .find_map(|kind| rest.rsplit_once(kind))
        .map_or("", |(repository, _)| repository);
    let action = if matches!(*method, Method::GET | Method::HEAD) {
        "pull"
    } else {
        "pull,push"
    };
    let scope = format!("repository:{repository}:{action}");
    let challenge = if login.token {
        let wanted: Vec<String> = ["pull", "pull,push"]
            .iter()
            .filter(|granted| granted.contains(action))
            .map(|granted| STANDARD.encode(format!("repository:{repository}:{granted}")))
            .collect();
        if authorization
            .and_then(|text| text.strip_prefix("Bearer "))
            .is_some_and(|token| wanted.iter().any(|good| good == token))
        {
            return None;
        }
        format!(
            r#"Bearer realm="http://{}/token",service="testkit",scope="{scope}""#,
            shared.address
        )
    } else {
        if authorization == Some(basic(login).as_str()) {
            return None;
        }
        r#"Basic realm="testkit""#.to_owned()
    };
    let is_hidden = matches!(&*lock(&shared.fault), Some(Fault::HiddenContent));
    if is_hidden && !rest.is_empty() {
        return Some(error(StatusCode::NOT_FOUND, "manifest unknown"));
    }
    let mut response = error(StatusCode::UNAUTHORIZED, "authentication required");
    if let Ok(value) = challenge.parse() {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, value);
    }
    Some(response)
}

fn manifest(call: &Call<'_>) -> Response {
    if *call.method == Method::PUT {
        return put_manifest(call);
    }
    let fault = lock(&call.shared.fault).clone();
    if let Some(Fault::ReferrersTag(code)) = fault
        && call.name.starts_with("sha256-")
    {
        return error(status(code), "not for you");
    }
    if let Some(Fault::SignatureLocations { list, older, .. }) = fault
        && call.name.starts_with("sha256-")
    {
        let code = if call.name.contains('.') { older } else { list };
        if code != 200 {
            return error(status(code), "not for you");
        }
    }
    if let Some(Fault::Attestations(code)) = fault
        && matches!(call.name.split_once('.'), Some((_, "att")))
    {
        return error(status(code), "not for you");
    }
    let store = lock(&call.shared.store);
    let name = match fault {
        Some(Fault::ReferrersTagIsSubject) if !call.name.contains('.') => {
            call.name.replacen("sha256-", "sha256:", 1)
        }
        _ => call.name.to_owned(),
    };
    let Some((media_type, bytes)) = store.manifest(call.repository, &name) else {
        return error(StatusCode::NOT_FOUND, "manifest unknown");
    };
    let mut digest = bundle_core::reference::Digest::of(bytes);
    let (mut media_type, mut bytes) = (media_type.clone(), bytes.clone());
    match fault {
        Some(Fault::AlteredManifest) => {
            let mut changed = bytes.to_vec();
            changed.push(b'\n');
            bytes = changed.into();
        }
        Some(Fault::HugeManifest) if *call.method == Method::GET => {
            return (
                [(header::CONTENT_TYPE, media_type)],
                huge(call.shared, b' '),
            )
                .into_response();
        }
        Some(Fault::LyingHeader) => digest = bundle_core::reference::Digest::of(b"something else"),
        Some(Fault::WrongMediaType(other)) => media_type = other,
        _ => {}
    }
    let headers = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_LENGTH, bytes.len().to_string()),
        (
            header::HeaderName::from_static("docker-content-digest"),
            digest.to_string(),
        ),
    ];
    if *call.method == Method::HEAD {
        bytes = Bytes::new();
    }
    (headers, Body::from(bytes)).into_response()
}

fn put_manifest(call: &Call<'_>) -> Response {
    let media_type = call
        .headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let Ok(document) = serde_json::from_slice::<Value>(&call.body) else {
        return error(StatusCode::BAD_REQUEST, "manifest invalid");
    };
    let mut store = lock(&call.shared.store);
    let before = store.manifest(call.repository, call.name).cloned();
    let digest = store.put_manifest(call.repository, call.name, media_type, &call.body);
    if let Some(Fault::LostUpdates(times)) = &mut *lock(&call.shared.fault)
        && *times > 0
        && call.name.starts_with("sha256-")
    {
        *times -= 1;
        let (media_type, bytes) = before.unwrap_or_else(|| {
            let empty = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] });
            (INDEX.to_owned(), empty.to_string().into())
        });
        store.put_manifest(call.repository, call.name, &media_type, &bytes);
    }
    let mut response = (
        StatusCode::CREATED,
        [("docker-content-digest", digest.to_string())],
    )
        .into_response();
    if call.shared.settings.referrers_api
        && let Some(subject) = document["subject"]["digest"].as_str()
        && let Ok(value) = subject.parse()
    {
        response.headers_mut().insert("oci-subject", value);
    }
    response
}

fn referrers(call: &Call<'_>) -> Response {
    match &*lock(&call.shared.fault) {
        Some(Fault::ReferrersApi(code)) => return error(status(*code), "not for you"),
        Some(Fault::SignatureLocations { api: 204, .. }) => {
            let empty = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [] });
            return ([(header::CONTENT_TYPE, INDEX)], empty.to_string()).into_response();
        }
        Some(Fault::SignatureLocations { api, .. }) if *api != 200 => {
            return error(status(*api), "not for you");
        }
        Some(Fault::ReferrersPage(code)) => {
            let page = "<!doctype html><title>Nothing here</title>";
            let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8")];
            return (status(*code), headers, page).into_response();
        }
        Some(Fault::ReferrersTag(_) | Fault::ReferrersTagIsSubject) => {
            return error(StatusCode::NOT_FOUND, "no such page");
        }
        Some(Fault::HugeList) => {
            return ([(header::CONTENT_TYPE, INDEX)], huge(call.shared, b' ')).into_response();
        }
        _ => {}
    }
    if !call.shared.settings.referrers_api {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    }
    let all = lock(&call.shared.store).referrers(call.repository, call.name);
    let page = call.shared.settings.page;
    let from: usize = call
        .query
        .get("from")
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let looping = matches!(&*lock(&call.shared.fault), Some(Fault::LoopingList));
    let entries: Vec<_> = all.iter().skip(from).take(page).collect();
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": entries });
    let mut response = ([(header::CONTENT_TYPE, INDEX)], index.to_string()).into_response();
    if from + page < all.len() || looping {
        let next = format!(
            r#"</v2/{}/referrers/{}?from={}>; rel="next""#,
            call.repository,
            call.name,
            if looping { 0 } else { from + page }
        );
        if let Ok(value) = next.parse() {
            response.headers_mut().insert(header::LINK, value);
        }
    }
    response
}

fn tags(call: &Call<'_>) -> Response {
    let fault = lock(&call.shared.fault).clone();
    if fault == Some(Fault::HugeList) {
        return huge(call.shared, b' ').into_response();
    }
    let all = lock(&call.shared.store).tags(call.repository);
    if all.is_empty() {
        return error(StatusCode::NOT_FOUND, "repository name not known");
    }
    let looping = fault == Some(Fault::LoopingList);
    let last = call.query.get("last").filter(|_| !looping);
    let page: Vec<_> = all
        .iter()
        .filter(|tag| last.as_ref().is_none_or(|last| *tag > last))
        .take(call.shared.settings.page)
        .collect();
    let more = page
        .last()
        .filter(|last| **last != all.last().unwrap_or(last));
    let next = more.map(|last| {
        format!(
            r#"</v2/{}/tags/list?last={last}>; rel="next""#,
            call.repository
        )
    });
    let mut response = json!({ "name": call.repository, "tags": page })
        .to_string()
        .into_response();
    let next = next
        .or_else(|| looping.then(|| format!(r#"</v2/{}/tags/list>; rel="next""#, call.repository)));
    if let Some(Ok(value)) = next.map(|next| next.parse()) {
        response.headers_mut().insert(header::LINK, value);
    }
    response
}
