//! Applies to an object that another actor changes many times in a second.

use std::time::Duration;

use super::*;

/// Time for which a version of the object is the current one. Shorter than the first delay of
/// [`crate::retry::delays::APPLY`], so that a version that was read before such a delay is always
/// outdated after it.
const VERSION_AGE: Duration = Duration::from_millis(30);

/// Returns a client of a server with one object. The object gets a new version after
/// [`VERSION_AGE`], and after the first dry run. The server rejects a patch of another version.
fn changing() -> Client {
    let (service, mut server) = tower_test::mock::pair::<Request<Body>, Response<Body>>();
    tokio::spawn(async move {
        let (mut version, mut since, mut patches) = (5, Instant::now(), 0);
        while let Some((request, reply)) = server.next_request().await {
            if patches == 1 || since.elapsed() > VERSION_AGE {
                (version, since) = (version + 1, Instant::now());
            }
            let (parts, sent) = request.into_parts();
            let sent = sent.collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&sent).unwrap_or_default();
            let current = version.to_string();
            let is_patch = parts.method == Method::PATCH;
            patches += u32::from(is_patch);
            let (status, answer) = if is_patch && body["metadata"]["resourceVersion"] != *current {
                failure(409)
            } else {
                (200, live("ours", &current, "content"))
            };
            let mut response = Response::new(Body::from(answer.to_string().into_bytes()));
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            reply.send_response(response);
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn object_that_changes_all_the_time_is_applied() {
    let (client, memory) = (changing(), AllowedDryRuns::default());
    let applies = checking(&client, &memory, (false, false));
    let item = PreparedObject::config_map();
    let prepared = applies.preparer.prepare(&item, ours()).await.unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let checked = applies.check(in_version(prepared), true, end).await;
    let checked = checked.map_err(|(_, refusal)| refusal).unwrap();
    // The object gets another version before the apply.
    tokio::time::sleep(2 * VERSION_AGE).await;
    let outcome = applies.apply(&client, checked).await;
    assert_eq!(outcome.result.unwrap().seen.uid, "ours");
    assert!(!outcome.is_uncertain);
}
