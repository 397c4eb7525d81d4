//! Objects that the API server rejects because they are invalid, and not because of permissions:
//! the message names the field, and the reconciler retries slowly. `requester` tests objects that
//! the requester has no permission to write.

use std::time::{Duration, Instant};

use e2e::Cluster;
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    apply, bundle_of, condition, deployment, get, kubectl, publish, staged, until,
};

/// Duration of the count of requests. The next attempt starts about one minute after the count.
const COUNT_DURATION: Duration = Duration::from_secs(70);
/// Time between two changes of the labels.
const LABEL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum number of attempts during [`COUNT_DURATION`]. The attempts are at about 0, 2, 6, 14, 30
/// and 62 s. Each attempt is one dry run.
const MOST: usize = 8;
/// Time limit for an installation after a change of the content. The limit is shorter than the time
/// until the next attempt without a change.
const SOON: Duration = Duration::from_secs(30);

/// CRD that is not part of the content, so that `build` cannot check its objects.
const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pots.invalid.example.com}
spec:
  group: invalid.example.com
  scope: Namespaced
  names: {kind: Pot, listKind: PotList, plural: pots, singular: pot}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              litres: {type: integer, maximum: 9}
              env:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
";

fn content(namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web, namespace: {namespace}}}\n---\napiVersion: invalid.example.com/v1\nkind: Pot\nmetadata: {{name: pot, namespace: {namespace}}}\nspec: {spec}\n"
    )
}

/// Returns the number of writes of the custom resource.
fn requests(cluster: &Cluster, namespace: &str) -> usize {
    let events = cluster.audit().unwrap();
    let about = |event: &&Value| {
        event["objectRef"]["namespace"] == namespace
            && event["objectRef"]["resource"] == "pots"
            && event["verb"] == "patch"
    };
    events.iter().filter(about).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_cannot_be_stored_is_named_with_its_field_and_retried_slowly() {
    let (cluster, _webhook) = staged(Cluster::builder().audit(true)).await;
    let tool = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let created = tool
        .args(["create", "-f", "-"])
        .stdin(DEFINITION.to_owned());
    created.output().await.unwrap().success().unwrap();
    let push = async |namespace: &str, tag: u32, spec: &str| {
        publish(&cluster, &format!("team/{namespace}:{tag}"), |f| {
            bundle_of(f, namespace, &content(namespace, spec))
        })
        .await
    };
    let cases = [
        ("invalid-env", "{env: [{name: A}, {name: A}]}", ".spec.env"),
        ("invalid-field", "{litres: 1, colour: red}", ".spec.colour"),
        ("invalid-type", "{litres: many}", ".spec.litres"),
    ];
    for (namespace, spec, field) in cases {
        kubectl(&cluster, &format!("create namespace {namespace}")).await;
        let invalid = push(namespace, 1, spec).await;
        apply(&cluster, &deployment(namespace, &invalid, &json!({}))).await;
        let what = format!("bundledeployment {namespace}");
        let reported = until(&cluster, &what, "Installed", "False").await;
        assert!(reported.contains(field), "{reported}");
        let key = format!("Pot.invalid.example.com/{namespace}/pot");
        assert!(reported.contains(&key), "{reported}");
        let object = get(&cluster, &what).await.unwrap();
        assert_eq!(condition(&object, "Installed")["reason"], "InstallFailed");
    }

    // Changed labels of the BundleDeployments trigger the reconciler. The reconciler does not send
    // the invalid objects again.
    let before = cases.map(|(namespace, ..)| requests(&cluster, namespace));
    let began = Instant::now();
    while began.elapsed() <= COUNT_DURATION {
        let now = began.elapsed().as_millis();
        let line = format!("label bundledeployment --all --overwrite touched=t{now}");
        kubectl(&cluster, &line).await;
        tokio::time::sleep(LABEL_INTERVAL).await;
    }
    for ((namespace, ..), before) in cases.into_iter().zip(before) {
        let sent = requests(&cluster, namespace);
        assert!(sent <= MOST, "{namespace}: {before} and {sent} requests");
    }
    for (namespace, ..) in cases {
        let valid = push(namespace, 2, "{litres: 1}").await;
        let began = Instant::now();
        apply(&cluster, &deployment(namespace, &valid, &json!({}))).await;
        until(
            &cluster,
            &format!("bundledeployment {namespace}"),
            "Ready",
            "True",
        )
        .await;
        let elapsed = began.elapsed();
        assert!(elapsed < SOON, "took {elapsed:?}");
    }
}
