//! Request to the registry, and responses that several handlers use.

use std::sync::Arc;

use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde_json::json;

use super::Shared;

pub(super) struct Query(pub(super) String);

impl Query {
    pub(super) fn get(&self, name: &str) -> Option<String> {
        self.0.split('&').find_map(|pair| {
            let (key, value) = pair.split_once('=')?;
            (key == name).then(|| {
                value
                    .replace("%3A", ":")
                    .replace("%2F", "/")
                    .replace("%2C", ",")
            })
        })
    }
}

pub(super) struct Call<'a> {
    pub(super) shared: &'a Arc<Shared>,
    pub(super) method: &'a Method,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: &'a Query,
    pub(super) repository: &'a str,
    pub(super) name: &'a str,
    pub(super) body: Bytes,
}

pub(super) fn error(status: StatusCode, message: &str) -> Response {
    let body = json!({ "errors": [{ "code": "TESTKIT", "message": message }] });
    (
        status,
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

pub(super) fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::IM_A_TEAPOT)
}
