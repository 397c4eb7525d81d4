//! Memory that an attacker can use: with unfinished requests on the two ports of the pod, and as a
//! tenant with dry runs that cause image lookups.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bundle_testkit::registry::Registry;
use e2e::wait;
use serde_json::{Value, json};

use super::client::{connected, connected_from_elsewhere, tls};
use super::*;
use crate::scenarios::pod::limits::hostile_server::HostileServer;

/// Number of dry runs whose registry stalls. API servers allow 200 concurrent writes.
const STALLED: usize = 128;
/// Size in bytes of a manifest. Its last byte never arrives. The manifest and its parsed form
/// together would fit into the memory for small lookups.
const STALLED_MANIFEST: usize = 127 << 10;
/// Memory that stalled reviews of one requester may add, in KiB: half of the memory for reviews,
/// and the reviews themselves.
const STALLED_GROWTH: u64 = 48 << 10;
/// Size in bytes of the request header that each connection sends. The pod can close the connection
/// before the whole header is sent.
const HEAD: usize = 380 << 10;
/// Number of connections that send requests without their bodies.
const BODILESS: usize = 64;

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// Sends a request header without its end, and returns the stream; `None` if the pod has closed the
/// stream.
fn unfinished(mut stream: Box<dyn Stream>) -> Option<Box<dyn Stream>> {
    let line = format!("x: {}\r\n", "a".repeat(8 << 10));
    stream
        .write_all(b"POST /validate/x HTTP/1.1\r\nHost: a\r\n")
        .ok()?;
    for _ in 0..HEAD / line.len() {
        stream.write_all(line.as_bytes()).ok()?;
    }
    stream.flush().ok()?;
    Some(stream)
}

/// Waits until the pod has closed the stream, and returns `true`. Returns `false` if a read reaches
/// its timeout.
fn is_closed(mut stream: Box<dyn Stream>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                );
            }
        }
    }
}

/// Opens `count` concurrent connections and sends an unfinished header on each connection. Returns
/// the number of connections that the pod does not close.
async fn flood<S: Stream + 'static>(
    count: usize,
    open: impl Fn() -> S + Clone + Send + 'static,
) -> usize {
    let floods = (0..count).map(|_| {
        let open = open.clone();
        tokio::task::spawn_blocking(move || {
            let stream: Box<dyn Stream> = Box::new(open());
            unfinished(stream).is_none_or(is_closed)
        })
    });
    let closed = join_all(floods).await;
    closed
        .into_iter()
        .filter(|closed| !*closed.as_ref().unwrap())
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_request_headers_on_the_admission_port_use_no_memory_and_reviews_continue() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let open = tls(&cluster, connected).await;
    let probe = LivenessProbe::start(&webhook);
    let flooding = tokio::spawn(flood(300, open));
    wait::until_true(
        LONG,
        "a review is answered while connections flood",
        || async {
            let (status, message) = create_dry(&client, "bundles", &bundle("floods", PINNED)).await;
            // The webhook has responded: the object is admitted, or rejected with a diagnostic
            // code.
            Ok(status == 201 || message.contains("BUNDLE-"))
        },
    )
    .await
    .unwrap();
    assert_eq!(flooding.await.unwrap(), 0, "connections are still open");
    survived(
        "300 unfinished heads on the admission port",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_bodies_of_a_client_that_knows_the_path_delay_no_review_of_the_api_server() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let url: http::Uri = review_url(&cluster).await.parse().unwrap();
    let head = format!(
        "POST {} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 65536\r\n\r\n",
        url.path()
    );
    let open = tls(&cluster, connected_from_elsewhere).await;
    let probe = LivenessProbe::start(&webhook);
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicUsize::new(0));
    let answered = Arc::new(AtomicUsize::new(0));
    let attacks: Vec<_> = (0..BODILESS)
        .map(|_| {
            let (open, head, stop) = (open.clone(), head.clone(), stop.clone());
            let (sent, answered) = (sent.clone(), answered.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let mut stream = open();
                    if stream.write_all(head.as_bytes()).is_ok() && stream.flush().is_ok() {
                        sent.fetch_add(1, Ordering::Relaxed);
                        // Waits for a response, or the end of the connection.
                        let is_answered = stream.read(&mut [0; 4096]).is_ok_and(|bytes| bytes > 0);
                        answered.fetch_add(usize::from(is_answered), Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    wait::until_true(LONG, "each connection has sent a request", || {
        std::future::ready(Ok(sent.load(Ordering::Relaxed) >= BODILESS))
    })
    .await
    .unwrap();
    for number in 0..10 {
        assert_reviewed(&client, &format!("floods-{number}")).await;
    }
    stop.store(true, Ordering::Relaxed);
    for attack in attacks {
        attack.join().unwrap();
    }
    let (sent, answered) = (
        sent.load(Ordering::Relaxed),
        answered.load(Ordering::Relaxed),
    );
    record(&format!(
        "{sent} requests without bodies, {answered} with a response"
    ));
    survived(
        "64 connections with requests without bodies",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unfinished_request_headers_on_the_health_port_use_no_memory_and_are_closed() {
    let (_cluster, mut webhook) = stage().await;
    let address = webhook.health_address();
    let probe = LivenessProbe::start(&webhook);
    let open = flood(100, move || connected(address)).await;
    assert_eq!(open, 0, "connections are still open");
    survived(
        "100 unfinished heads on the health port",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_dry_runs_whose_manifests_have_four_mebibytes_wait_for_memory() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let registry = Registry::without_faults().await.unwrap();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": bundle_core::reference::Digest::of(b"{}").to_string(), "size": 2},
        "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": bundle_core::reference::Digest::of(b"a").to_string(), "size": 10}],
        "annotations": {"a": "x".repeat(4_100_000)},
    })
    .to_string();
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let objects: Vec<Value> = (0..80)
        .map(|number| {
            let name = format!("floods-{number}");
            registry.put_manifest(&name, "1", kind, manifest.as_bytes());
            bundle(&name, &registry.reference(&format!("{name}:1")))
        })
        .collect();
    let probe = LivenessProbe::start(&webhook);
    let ana = |object: &Value| {
        let request = http::Request::post("/apis/core.rukpak.io/v1alpha1/bundles?dryRun=All")
            .header("content-type", "application/json")
            .header("impersonate-user", "floods-ana")
            .header("impersonate-group", "system:masters")
            .body(object.to_string().into_bytes())
            .unwrap();
        let client = client.clone();
        async move { client.request::<Value>(request).await }
    };
    let answers = join_all(objects.iter().map(ana)).await;
    for answer in &answers {
        let Err(error) = answer else { continue };
        let text = error.to_string();
        // Accepted responses: a retry response of the webhook, or a timeout of the API server. If
        // the pod ended, the connection would be closed. Status 408 means that the API server sent
        // the body too slowly, on a busy machine.
        let good = ["BUNDLE-", "too many", "deadline exceeded", "code 408"];
        assert!(good.iter().any(|good| text.contains(good)), "{text}");
    }
    survived("80 dry runs with manifests of 4 MiB", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_dry_runs_of_one_tenant_have_bounded_memory_and_leave_reviews_to_another() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let server = HostileServer::new(|head| {
        if !head.contains("/manifests/") {
            return "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        let text = "a".repeat(STALLED_MANIFEST - 1);
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {STALLED_MANIFEST}\r\n\r\n{text}"
        )
    });
    let port = server.listen().await;
    let digest = bundle_core::reference::Digest::of(b"stalls");
    let stalled: Vec<Value> = (0..STALLED)
        .map(|number| {
            let reference = format!("127.0.0.1:{port}/stalls-{number}@{digest}");
            bundle(&format!("stalls-{number}"), &reference)
        })
        .collect();
    let honest = Registry::without_faults().await.unwrap();
    let file = config_map("stalls", "a").into_bytes();
    let image = tar([("manifests/a.yaml".to_owned(), file)]);
    let (reference, _) = publish(&honest, "stalls", &image);

    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let user = "stalls-mallory";
    let dry_runs = stalled
        .iter()
        .map(|object| create_dry_as(&client, user, "bundles", object));
    let ordinary = async {
        wait::until_true(LONG, "lookups are stalled", || async {
            Ok(server.answered() >= STALLED / 8)
        })
        .await
        .unwrap();
        let asked = Instant::now();
        let object = bundle("stalls-ordinary", &reference);
        let answer = create_dry_as(&client, "stalls-ana", "bundles", &object).await;
        (answer, asked.elapsed())
    };
    let (answers, (ordinary, took)) = tokio::join!(join_all(dry_runs), ordinary);
    assert_eq!(ordinary, (201, String::new()));
    record(&format!("the dry run of another tenant took {took:?}"));
    for (status, message) in &answers {
        // Accepted responses: admitted without reading the image, because no policy requires
        // signatures; rejected because of missing memory; or a timeout of the review or of the API
        // server.
        let good = ["BUNDLE-", "deadline exceeded", "code 408"];
        assert!(
            *status == 201 || good.iter().any(|good| message.contains(good)),
            "{status}: {message}"
        );
    }
    let attack = format!("{STALLED} dry runs whose registry stalls");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(peak < idle + STALLED_GROWTH, "{idle} KiB, then {peak} KiB");
}
