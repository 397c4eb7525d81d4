//! Memory of the pod that an attacker who operates registries can use: with tokens, challenges and
//! response headers.

use super::*;
use crate::scenarios::pod::limits::hostile_server::HostileServer;

/// Number of dry runs, each for another repository or registry.
const DRY_RUNS: usize = 400;
const PARALLEL: usize = 8;
/// Memory that the reviews may add, in KiB: far less than all texts together.
const GROWTH_LIMIT: u64 = 24 << 10;

/// Sends a dry run of a BundleDeployment for each reference, and checks the memory of the pod.
async fn dry_runs_survive(attack: &str, server: &HostileServer, references: &[String]) {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    for some in references.chunks(PARALLEL) {
        let objects: Vec<_> = some
            .iter()
            .map(|reference| deployment("registry-texts", reference))
            .collect();
        let dry_runs = objects
            .iter()
            .map(|object| create_dry(&client, "bundledeployments", object));
        join_all(dry_runs).await;
    }
    let answered = server.answered();
    assert!(answered >= references.len() / 2, "{answered} requests");
    let peak = survived(attack, &mut webhook, probe).await;
    assert!(peak < idle + GROWTH_LIMIT, "{idle} KiB, then {peak} KiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_many_registries_with_large_headers_do_not_exhaust_memory() {
    // The header is smaller than the limit of the HTTP library for all headers of a response.
    let padding = "a".repeat(300 << 10);
    let server = HostileServer::new(move |_| {
        format!("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nx-padding: {padding}\r\n\r\n")
    });
    let mut references = Vec::new();
    for _ in 0..DRY_RUNS {
        references.push(format!("127.0.0.1:{}/web:1.0.0", server.listen().await));
    }
    let attack = format!("{DRY_RUNS} registries with headers of 300 KiB");
    dry_runs_survive(&attack, &server, &references).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tokens_of_many_repositories_do_not_exhaust_memory() {
    // One token is just below the size limit for a response of a token service, and one token is
    // above the limit.
    let tokens = [60, 250].map(|kib| {
        format!(
            r#"{{"token":"{}","expires_in":100000}}"#,
            "a".repeat(kib << 10)
        )
    });
    let server = HostileServer::new(move |head| {
        let host = head.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("host").then_some(value)
        });
        let host = host.unwrap_or_default();
        if head.starts_with("GET /token") {
            let body = &tokens[usize::from(head.contains("large"))];
            format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
                body.len()
            )
        } else if head.to_ascii_lowercase().contains("\r\nauthorization: ") {
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned()
        } else {
            format!(
                "HTTP/1.1 401 Unauthorized\r\nwww-authenticate: Bearer realm=\"http://{host}/token\"\r\ncontent-length: 0\r\n\r\n"
            )
        }
    });
    let port = server.listen().await;
    let references: Vec<_> = (0..DRY_RUNS)
        .map(|number| {
            let size = if number % 2 == 0 { "small" } else { "large" };
            format!("127.0.0.1:{port}/{size}-{number}:1.0.0")
        })
        .collect();
    let attack = format!("{DRY_RUNS} repositories with tokens of 60 and 250 KiB");
    dry_runs_survive(&attack, &server, &references).await;
}
