//! Checks of the API server: its response, version and clock.

use bundle_core::check::KubernetesSchemas as _;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::doctor::{CheckResult, Observed, client};
use bundle_core::version::Minor;
use bundle_schemas::BuiltinSchemas;
use http::{Request, StatusCode, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::client::Body;
use kube::core::Status;
use serde_json::Value;

use super::observer::{Observer, result_of, timeout_message};

const CHECK: &str = "connection";

/// Checks the connection to the API server. The returned flag is `false` if all further requests
/// would fail too.
pub(super) async fn check(observer: &Observer) -> (Vec<CheckResult>, bool) {
    let name = &observer.target.cluster.name;
    let sent = Timestamp::now();
    let exchange = async {
        let request = Request::get("/version")
            .body(Body::empty())
            .map_err(kube::Error::HttpError)?;
        let response = observer.client().send(request).await?;
        let (parts, body) = response.into_parts();
        Ok((parts, body.collect_bytes().await?, Timestamp::now()))
    };
    let exchange = observer.target.cluster.send(exchange);
    let (parts, body, received) = match tokio::time::timeout(observer.deadline, exchange).await {
        Ok(Ok(response)) => response,
        Ok(Err(failure)) => return (vec![result_of(CHECK, failure)], false),
        Err(_) => {
            let finding = Finding::error(
                codes::cluster::UNREACHABLE,
                timeout_message(observer.deadline),
            );
            let finding = finding
                .about(name.as_str())
                .hint("check the address in the kubeconfig");
            return (vec![CheckResult::of(CHECK, finding)], false);
        }
    };
    let message = || {
        let status: Option<Status> = serde_json::from_slice(&body).ok();
        status.map_or_else(|| parts.status.to_string(), |status| status.message)
    };
    let version = match parts.status {
        StatusCode::OK => {
            let info: Value = serde_json::from_slice(&body).unwrap_or_default();
            match info["gitVersion"].as_str() {
                Some(version) => Observed::Found(version.to_owned()),
                None => Observed::Missing,
            }
        }
        StatusCode::UNAUTHORIZED => {
            let finding = Finding::error(
                codes::cluster::BAD_KUBECONFIG,
                format!("the API server rejects the credentials: {}", message()),
            );
            let finding = finding
                .about(name.as_str())
                .hint("log in again, or select another context");
            return (vec![CheckResult::of(CHECK, finding)], false);
        }
        StatusCode::FORBIDDEN => Observed::Forbidden(message()),
        StatusCode::NOT_FOUND => Observed::Missing,
        _ => Observed::Failed(message()),
    };
    let milliseconds = received.duration_since(sent).as_millis();
    // The API server set its time between the sending of the request and the receipt of the
    // response. Therefore the API server's time is compared with the middle of this period.
    let local = sent.as_second() + received.duration_since(sent).as_secs() / 2;
    let date = parts.headers.get(header::DATE);
    let date = date
        .and_then(|date| DateTimeParser::new().parse_timestamp(date.as_bytes()).ok())
        .map(Timestamp::as_second);
    let newest = BuiltinSchemas.versions().last().copied();
    let results = vec![
        CheckResult::ok(
            CHECK,
            name.as_str(),
            format!("responded in {milliseconds} ms"),
        ),
        client::kubernetes(version, newest.unwrap_or(Minor(0, 0))),
        client::clock(date, local),
    ];
    (results, true)
}
