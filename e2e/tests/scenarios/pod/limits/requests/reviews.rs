//! Memory and time of the pod that a tenant can use with dry runs of objects that are small as text
//! and large when parsed. Most objects are just below the limit for their memory use. In
//! `parallel_reviews_of_the_largest_objects_wait_for_memory`, the objects exceed this limit, or
//! need little more memory than their text.

use serde_json::{Value, json};

use super::*;

/// Number of parallel dry runs of the attacker. The client repeats requests that get a retry
/// response.
const PARALLEL: usize = 6;
/// Memory that reviews with empty groups may add, in KiB. The pod can receive one body of 8 MiB
/// while it parses another body.
const GROUPS_GROWTH: u64 = 24 << 10;
/// Maximum number of access reviews during a dry run, including the access reviews of controllers.
/// The dry run names ConfigMaps that its user has no permission to read.
const ACCESS_REVIEWS: u64 = 32;
/// Number of parallel dry runs of approvals. API servers allow 200 concurrent writes.
const APPROVALS: usize = 100;
/// Size in bytes of a text in the spec of a BundleDeployment. The pod reads responses of this size
/// in parallel.
const APPROVED_TEXT: usize = 900_000;
/// Memory that reviews of approvals may add, in KiB: much less than 100 BundleDeployments need.
const APPROVALS_GROWTH: u64 = 32 << 10;

#[tokio::test(flavor = "multi_thread")]
async fn parallel_reviews_of_tiny_lists_neither_exhaust_memory_nor_delay_others() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let registry = Registry::without_faults().await.unwrap();
    let object = |name: &str, more: (&str, Value)| {
        let mut object = deployment(name, &registry.reference("weights/none:1"));
        object["spec"][more.0] = more.1;
        object
    };
    let lists = |count: usize| json!(vec![json!([0]); count]);
    let attacks = [
        (
            "config",
            json!({"l": lists(100_000), "pad": "x".repeat(1_800_000)}),
        ),
        ("config", json!({"l": lists(118_000)})),
        ("config", json!({"m": vec![json!({"a": 0}); 30_000]})),
    ];
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let mut longest = Duration::ZERO;
    for (number, attack) in attacks.into_iter().enumerate() {
        let attacking = join_all((0..PARALLEL).map(|task| {
            let object = object(&format!("weights-{number}-{task}"), attack.clone());
            let client = client.clone();
            async move {
                let (status, message) =
                    create_dry_as(&client, "weights-ana", "bundledeployments", &object).await;
                // Accepted responses: admitted, rejected because of the memory use, or a retry
                // response. If the pod ended, the call would fail.
                let good = ["BUNDLE-", "too many", "deadline exceeded", "code 408"];
                assert!(
                    status == 201 || good.iter().any(|good| message.contains(good)),
                    "{status}: {message}"
                );
            }
        }));
        let attacking = tokio::spawn(attacking);
        while !attacking.is_finished() {
            let asked = Instant::now();
            let bob = object("weights-bob", ("paused", json!(true)));
            let (status, message) =
                create_dry_as(&client, "weights-bob", "bundledeployments", &bob).await;
            longest = longest.max(asked.elapsed());
            assert_eq!(status, 201, "{message}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        attacking.await.unwrap();
    }
    let after = anonymous_kib(webhook.pid().unwrap());
    record(&format!(
        "before {} MiB, after {} MiB, longest review of another requester {longest:?}",
        idle >> 10,
        after >> 10
    ));
    survived("dry runs of tiny lists, 6 at a time", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn review_bodies_of_empty_lists_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let url = review_url(&cluster).await;
    let probe = LivenessProbe::start(&webhook);
    for unit in ["[],", "{\"\":0},", "[[]],", "0,"] {
        let head = format!(
            r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","kind":{{"group":"core.rukpak.io","version":"v1alpha1","kind":"Bundle"}},"name":"a","operation":"CREATE","userInfo":{{"username":"mallory"}},"object":{{"spec":[{}"#,
            unit.repeat(((8 << 20) - 400) / unit.len())
        );
        let body = format!("{head}0]}}}}}}").into_bytes();
        assert!(body.len() <= 8 << 20);
        let answers = join_all((0..4).map(|_| post(&url, body.clone()))).await;
        assert!(
            answers.iter().all(Option::is_some),
            "{unit}: no answer: {answers:?}"
        );
    }
    survived(
        "8 MiB bodies of tiny values, four at a time",
        &mut webhook,
        probe,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_reviews_of_the_largest_objects_wait_for_memory() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    let mut object = deployment("large", PINNED);
    // Each object is smaller than 3 MiB, the maximum size of a request to the API server.
    let objects: Vec<Value> = (0..8)
        .map(|number| {
            let text = "x".repeat(100);
            object["metadata"]["name"] = format!("large-{number}").into();
            object["spec"]["config"] = match number % 2 {
                0 => json!({"a": vec![json!([]); 900_000]}),
                _ => json!({"a": vec![Value::String(text); 26_000]}),
            };
            object.clone()
        })
        .collect();
    let answers = join_all(
        objects
            .iter()
            .map(|object| create_dry(&client, "bundledeployments", object)),
    )
    .await;
    // Accepted responses: admitted, rejected because of the memory use or at the deadline, or a
    // retry response. If the pod ended, the connection would be closed.
    for (status, message) in &answers {
        let good = match status {
            201 => true,
            403 => ["BUNDLE-REVIEW-042", "BUNDLE-REVIEW-063"]
                .iter()
                .any(|code| message.contains(code)),
            503 => ["BUNDLE-REVIEW-021", "BUNDLE-REVIEW-043"]
                .iter()
                .any(|code| message.contains(code)),
            // Status 408 means that the body did not arrive before the timeout, on a busy machine.
            _ => ["too many", "deadline exceeded", "status code 408"]
                .iter()
                .any(|words| message.contains(words)),
        };
        assert!(good, "{status}: {message}");
    }
    survived("eight objects of 3 MiB at once", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_with_millions_of_empty_groups_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let url = review_url(&cluster).await;
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let groups = r#""","#.repeat(((8 << 20) - 400) / 3);
    let body = format!(
        r#"{{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{{"uid":"1","kind":{{"group":"a","version":"v1","kind":"A"}},"name":"a","operation":"CREATE","userInfo":{{"username":"mallory","groups":[{groups}""]}},"object":{{}}}}}}"#
    )
    .into_bytes();
    assert!(body.len() <= 8 << 20);
    let answers = join_all((0..4).map(|_| post(&url, body.clone()))).await;
    // Accepted responses: 200 for a malformed review, or 429 for too many concurrent reviews.
    let all = answers
        .iter()
        .all(|answer| matches!(answer, Some(200 | 429)));
    assert!(all && answers.contains(&Some(200)), "{answers:?}");
    let peak = survived("four reviews with empty groups", &mut webhook, probe).await;
    assert!(peak < idle + GROUPS_GROWTH, "{idle} KiB, then {peak} KiB");
}

/// Returns the number of SubjectAccessReviews that the API server has received.
async fn access_reviews(client: &Client) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = client.request_text(request).await.unwrap();
    text.lines()
        .filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(r#"resource="subjectaccessreviews""#)
        })
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_runs_that_name_many_config_maps_cause_few_access_reviews() {
    let (cluster, mut webhook) = stage().await;
    grant_tenant(&cluster, "mallory").await;
    let client = cluster.client().await.unwrap();
    let probe = LivenessProbe::start(&webhook);
    // 256 ConfigMaps are within the limit of the schema, and 1,024 ConfigMaps exceed it. The API
    // server validates the schema after the mutating review.
    for (count, expected) in [
        (256, "has no permission to read ConfigMap"),
        (1_024, "configMaps"),
    ] {
        let config_maps: Vec<Value> = (0..count)
            .map(|number| json!({"configMap": {"name": format!("a{number}")}, "path": "manifests"}))
            .collect();
        let object = json!({
            "apiVersion": "core.rukpak.io/v1alpha1",
            "kind": "Bundle",
            "metadata": {"name": "config-maps"},
            "spec": {
                "provisionerClassName": CLASS,
                "source": {"type": "configMaps", "configMaps": config_maps},
            },
        });
        let before = access_reviews(&client).await;
        let (status, message) = create_dry_as_tenant(&client, "mallory", "bundles", &object).await;
        let caused = access_reviews(&client).await - before;
        record(&format!(
            "{count} ConfigMaps: {caused} access reviews; {status}: {message:.200}"
        ));
        assert!(message.contains(expected), "{status}: {message}");
        assert!(caused <= ACCESS_REVIEWS, "{caused} access reviews");
    }
    survived("dry runs that name 1,024 ConfigMaps", &mut webhook, probe).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_dry_runs_of_approvals_of_a_large_deployment_do_not_exhaust_memory() {
    let (cluster, mut webhook) = stage().await;
    let client = cluster.client().await.unwrap();
    let mut large = deployment("approved", PINNED);
    large["spec"]["paused"] = true.into();
    large["spec"]["config"] = json!({"text": "x".repeat(APPROVED_TEXT)});
    create_as(&cluster, "approvals-ana", &[large]).await;
    let stored = get(&cluster, "bundledeployment approved").await.unwrap();
    let approval = json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleApproval",
        "metadata": {"name": "approved"},
        "spec": {
            "bundleDeployment": {
                "name": "approved",
                "uid": stored["metadata"]["uid"],
                "generation": stored["metadata"]["generation"],
            },
            "digest": bundle_core::reference::Digest::of(b"{}").to_string(),
        },
    });
    let idle = anonymous_kib(webhook.pid().unwrap());
    let probe = LivenessProbe::start(&webhook);
    let dry_runs = (0..APPROVALS).map(|number| {
        let user = format!("approvals-{}", number % 10);
        let (client, approval) = (&client, &approval);
        async move { create_dry_as(client, &user, "bundleapprovals", approval).await }
    });
    let answers = join_all(dry_runs).await;
    let admitted = answers.iter().filter(|(status, _)| *status == 201).count();
    record(&format!("{admitted} of {APPROVALS} approvals are admitted"));
    // Accepted responses: admitted, or a retry response. If the pod ended, the calls would fail.
    for (status, message) in &answers {
        let good = ["BUNDLE-", "too many", "deadline exceeded", "code 408"];
        assert!(
            *status == 201 || good.iter().any(|good| message.contains(good)),
            "{status}: {message}"
        );
    }
    assert!(admitted > 0, "{answers:?}");
    let attack = format!("{APPROVALS} dry runs of approvals of a large BundleDeployment");
    let peak = survived(&attack, &mut webhook, probe).await;
    assert!(
        peak < idle + APPROVALS_GROWTH,
        "{idle} KiB, then {peak} KiB"
    );
}
