//! A service on loopback: issuer, CI system or certificate authority. The test sets its responses
//! and reads the requests.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::context::Context;

/// Received request.
#[derive(Clone)]
pub(super) struct ReceivedRequest {
    /// Path and query.
    pub(super) path: String,
    /// Authorization header.
    pub(super) authorization: String,
    /// Body.
    pub(super) body: String,
}

type Answers = Box<dyn FnMut(&ReceivedRequest) -> (u16, Value) + Send>;

struct Inner {
    answers: Answers,
    received_requests: Vec<ReceivedRequest>,
}

/// Running service.
pub(super) struct Service {
    /// URL of the service: `http://127.0.0.1:PORT`.
    pub(super) url: String,
    inner: Arc<Mutex<Inner>>,
}

async fn answer(State(inner): State<Arc<Mutex<Inner>>>, request: Request) -> Response {
    let authorization = request
        .headers()
        .get("authorization")
        .map(|value| value.to_str().unwrap().to_owned())
        .unwrap_or_default();
    let path = request.uri().to_string();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20)
        .await
        .unwrap();
    let asked = ReceivedRequest {
        path,
        authorization,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    let mut inner = inner.lock().unwrap();
    let (status, body) = (inner.answers)(&asked);
    inner.received_requests.push(asked);
    (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response()
}

impl Service {
    pub(super) fn start(context: &mut Context) -> Self {
        let listener = context
            .runtime()
            .block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let inner = Arc::new(Mutex::new(Inner {
            answers: Box::new(|_| (404, Value::Null)),
            received_requests: Vec::new(),
        }));
        let router = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&inner));
        context.runtime().spawn(async move {
            axum::serve(listener, router).await.unwrap();
        });
        context.replace(address.clone(), "[SERVICE]");
        Self {
            url: format!("http://{address}"),
            inner,
        }
    }

    /// Sets the responses.
    pub(super) fn answer(
        &self,
        answers: impl FnMut(&ReceivedRequest) -> (u16, Value) + Send + 'static,
    ) {
        let mut inner = self.inner.lock().unwrap();
        inner.answers = Box::new(answers);
        inner.received_requests.clear();
    }

    /// Returns the requests since [`answer`](Self::answer).
    pub(super) fn asked(&self) -> Vec<ReceivedRequest> {
        self.inner.lock().unwrap().received_requests.clone()
    }

    /// Returns the discovery document of an issuer.
    pub(super) fn discovery(&self) -> Value {
        let url = &self.url;
        json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/auth"),
            "token_endpoint": format!("{url}/token"),
            "device_authorization_endpoint": format!("{url}/device"),
            "code_challenge_methods_supported": ["S256"],
        })
    }
}

/// Returns an unsigned token with these changed claims.
pub(super) fn token(issuer: &str, change: &Value) -> String {
    let mut claims = json!({
        "iss": issuer,
        "aud": "sigstore",
        "sub": "somebody",
        "email": "ana@example.com",
        "exp": 4_000_000_000_u64,
    });
    if let (Value::Object(claims), Value::Object(change)) = (&mut claims, change) {
        claims.extend(change.clone());
    }
    let encode = |text: String| URL_SAFE_NO_PAD.encode(text);
    format!(
        "{}.{}.{}",
        encode(json!({"alg": "ES256", "typ": "JWT"}).to_string()),
        encode(claims.to_string()),
        encode("nobody".to_owned())
    )
}

/// Returns a field of a form.
pub(super) fn field(form: &str, name: &str) -> Option<String> {
    url::form_urlencoded::parse(form.as_bytes())
        .find(|(found, _)| found == name)
        .map(|(_, value)| value.into_owned())
}
