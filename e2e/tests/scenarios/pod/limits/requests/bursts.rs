//! Many parallel writes of one user, for which the API server opens many connections to the pod. A
//! connection with reviews in progress must not end early, because the API server does not repeat
//! reviews.

use std::collections::BTreeMap;

use e2e::wait;

use super::*;
use crate::scenarios::pod::limits::hostile_server::HostileServer;

const ROUNDS: usize = 3;
/// Number of parallel writes of administrators. The API server does not queue writes of
/// administrators.
const ADMINISTRATORS: usize = 400;
/// Number of parallel writes of a tenant: more than an API server processes at the same time.
const TENANT: usize = 240;

/// Lock that each burst holds, so that only one burst runs at a time. During two bursts, API
/// servers would have too little CPU time to send reviews before their timeouts.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Returns the number of responses of each kind: status, and expected text in the message. Panics
/// if a message contains no expected text, for example because the connection of the request ended.
fn assert_answered<'a>(answers: impl IntoIterator<Item = &'a (u16, String)>) -> String {
    let mut counts = BTreeMap::<String, usize>::new();
    for (status, message) in answers {
        // Accepted responses: admitted, rejected with a diagnostic code, or a timeout or limit of
        // the API server. Status 408 means that the API server sent the body too slowly, on a busy
        // machine.
        let good = [
            "BUNDLE-",
            "deadline exceeded",
            "too many",
            "Too many",
            "code 408",
        ];
        let found = good.iter().find(|good| message.contains(**good));
        assert!(*status == 201 || found.is_some(), "{status}: {message}");
        let found = found.copied().unwrap_or_default();
        *counts.entry(format!("{status} {found}")).or_default() += 1;
    }
    format!("{counts:?}")
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_writes_of_administrators_right_after_the_start_lose_no_review() {
    let _alone = ALONE.lock().await;
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    for round in 0..ROUNDS {
        let objects: Vec<Value> = (0..ADMINISTRATORS)
            .map(|number| bundle(&format!("burst-{round}-{number}"), PINNED))
            .collect();
        let answers = objects
            .iter()
            .zip(["burst-ana", "burst-bob"].iter().cycle());
        let answers = answers.map(|(object, user)| create_dry_as(&client, user, "bundles", object));
        let counts = assert_answered(&join_all(answers).await);
        record(&format!("round {round}: {counts}"));
    }
    let attack = format!("{ADMINISTRATORS} parallel writes of administrators");
    survived(&attack, &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_writes_of_a_tenant_whose_registry_stalls_fail_no_write_of_another_user() {
    let _alone = ALONE.lock().await;
    let (cluster, mut webhook) = stage().await;
    grant_tenant(&cluster, "mallory").await;
    let client = cluster.client().await.unwrap();
    let server = HostileServer::new(|head| {
        if !head.contains("/manifests/") {
            return "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned();
        }
        let kind = "application/vnd.oci.image.manifest.v1+json";
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: 1000\r\n\r\naaa")
    });
    let port = server.listen().await;
    let digest = bundle_core::reference::Digest::of(b"stalls");
    let probe = LivenessProbe::start(&webhook);
    for round in 0..ROUNDS {
        let before = server.answered();
        let objects: Vec<Value> = (0..TENANT)
            .map(|number| {
                let reference = format!("127.0.0.1:{port}/stalls-{round}-{number}@{digest}");
                bundle(&format!("burst-{round}-{number}"), &reference)
            })
            .collect();
        let burst = objects
            .iter()
            .map(|object| create_dry_as_tenant(&client, "mallory", "bundles", object));
        let (ended, end) = tokio::sync::watch::channel(false);
        let burst = async {
            let answers = join_all(burst).await;
            ended.send(true).unwrap();
            answers
        };
        let others = async {
            wait::until_true(LONG, "lookups are stalled", || async {
                Ok(server.answered() > before)
            })
            .await
            .unwrap();
            let mut count = 0;
            while !*end.borrow() {
                assert_reviewed(&client, &format!("other-{round}-{count}")).await;
                count += 1;
            }
            count
        };
        let (answers, others) = tokio::join!(burst, others);
        let counts = assert_answered(&answers);
        record(&format!(
            "round {round}: {counts}, {others} of another user"
        ));
    }
    let attack = format!("{TENANT} parallel writes of a tenant whose registry stalls");
    survived(&attack, &mut webhook, probe).await;
}
