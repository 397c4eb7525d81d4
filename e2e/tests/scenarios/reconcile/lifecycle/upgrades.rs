//! Upgrades write only some objects: objects with other values in the new content, and objects that
//! another user has changed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, deployment, get, installed, kubectl, publish, staged, until,
    until_reason,
};

use super::until_no_writes;

const DEPLOYMENT: &str = "bundledeployment many";
const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";
const INSTALLER: &str = "system:serviceaccount:bundle-system:installer";

/// Number of ConfigMaps in the content.
const CONFIG_MAPS: usize = 40;

/// Other objects of the content, from several phases.
const OTHERS: &str = "apiVersion: v1
kind: Namespace
metadata: {name: many}
---
apiVersion: v1
kind: Secret
metadata: {name: many, namespace: many}
stringData: {password: secret}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: many, namespace: many}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: many, namespace: many}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [get]}]
---
apiVersion: v1
kind: Service
metadata: {name: many, namespace: many}
spec: {ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: many, namespace: many}
spec:
  replicas: 0
  selector: {matchLabels: {app: many}}
  template:
    metadata: {labels: {app: many}}
    spec: {containers: [{name: web, image: registry.example.com/web:1}]}
---
apiVersion: example.com/v1
kind: Jug
metadata: {name: many, namespace: many}
spec: {litres: 2}
";

/// Returns the definition of the custom resource in [`OTHERS`].
fn definition(description: &str) -> String {
    format!(
        "---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jugs.example.com}}
spec:
  group: example.com
  scope: Namespaced
  names: {{kind: Jug, listKind: JugList, plural: jugs, singular: jug}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        description: {description}
        properties:
          spec: {{type: object, properties: {{litres: {{type: integer}}}}}}
"
    )
}

/// Publishes the content. The ConfigMaps in `changed` have the text of `tag`, all others have the
/// text `first`.
async fn content(cluster: &Cluster, tag: &str, changed: &[usize], description: &str) -> String {
    let mut manifests = OTHERS.to_owned();
    manifests.push_str(&definition(description));
    for number in 0..CONFIG_MAPS {
        let text = if changed.contains(&number) {
            tag
        } else {
            "first"
        };
        write!(
            manifests,
            "---
apiVersion: v1
kind: ConfigMap
metadata: {{name: item-{number}, namespace: many}}
data: {{text: {text}}}
"
        )
        .unwrap();
    }
    publish(cluster, &format!("team/many:{tag}"), |folder| {
        bundle_of(folder, "many", &manifests)
    })
    .await
}

/// Returns the text at `pointer` of an audit event; empty if there is none.
fn text(event: &Value, pointer: &str) -> String {
    let found = event.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_default().to_owned()
}

/// Checks that the pod has sent no request for a single ConfigMap of the content since `position`,
/// and at most two lists of ConfigMaps.
fn check_only_lists(cluster: &Cluster, position: u64) {
    let mut events = cluster.audit_since(position).unwrap();
    events.retain(|event| {
        text(event, "/user/username") == POD
            && text(event, "/objectRef/resource") == "configmaps"
            && ["", "many"].contains(&&*text(event, "/objectRef/namespace"))
    });
    let requests: Vec<String> = events
        .iter()
        .map(|event| format!("{} {}", text(event, "/verb"), text(event, "/requestURI")))
        .collect();
    let lists = requests.iter().filter(|line| line.starts_with("list "));
    let watches = requests.iter().filter(|line| line.starts_with("watch "));
    let lists = lists.count();
    assert_eq!(lists + watches.count(), requests.len(), "{requests:#?}");
    assert!((1..=2).contains(&lists), "{requests:#?}");
}

/// Installs this content, waits until the pod sends no further writes, and returns the objects that
/// the installing ServiceAccount wrote, as `resource/name`.
async fn written_by(cluster: &Cluster, reference: &str, more: &Value) -> BTreeSet<String> {
    let position = cluster.audit_position().unwrap();
    apply(cluster, &deployment("many", reference, more)).await;
    installed(cluster, "many").await;
    until(cluster, DEPLOYMENT, "Ready", "True").await;
    until_no_writes(cluster).await;
    let events = cluster.audit_since(position).unwrap();
    let is_write = |event: &&Value| {
        text(event, "/user/username") == POD
            && text(event, "/impersonatedUser/username") == INSTALLER
            && ["create", "patch", "update", "delete"].contains(&&*text(event, "/verb"))
            && !text(event, "/requestURI").contains("dryRun=All")
            && text(event, "/objectRef/apiGroup") != "authorization.k8s.io"
    };
    let name = |event: &Value| {
        let resource = text(event, "/objectRef/resource");
        format!("{resource}/{}", text(event, "/objectRef/name"))
    };
    events.iter().filter(is_write).map(name).collect()
}

fn config_maps(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    let numbers = numbers.into_iter();
    numbers
        .map(|number| format!("configmaps/item-{number}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_rollback_write_only_objects_with_other_values() {
    let (cluster, mut webhook) = staged(Cluster::builder().audit(true)).await;
    let one = content(&cluster, "first", &[], "holds-water").await;
    let two = content(&cluster, "second", &[3, 7, 20, 39], "holds-water").await;
    let three = content(&cluster, "third", &[3, 8], "holds-wine").await;
    let running = json!({});
    let all = written_by(&cluster, &one, &running).await;
    assert!(all.len() > CONFIG_MAPS, "{all:?}");
    let before = get(&cluster, DEPLOYMENT).await.unwrap();

    // The reconciler writes custom resources at each upgrade.
    let changed = || {
        let mut changed = config_maps([3, 7, 20, 39]);
        changed.insert("jugs/many".to_owned());
        changed
    };
    assert_eq!(written_by(&cluster, &two, &running).await, changed());
    let after = get(&cluster, DEPLOYMENT).await.unwrap();
    assert_eq!(
        after["status"]["installed"]["objects"],
        before["status"]["installed"]["objects"]
    );
    // After a change of settings alone, the reconciler writes only the custom resource.
    let settings = json!({"drift": {"mode": "Report"}});
    let custom = BTreeSet::from(["jugs/many".to_owned()]);
    assert_eq!(written_by(&cluster, &two, &settings).await, custom);
    assert_eq!(written_by(&cluster, &one, &running).await, changed());

    let position = cluster.audit_position().unwrap();
    webhook.restart().await.unwrap();
    wait::until_true(LONG, "the state is restored", || async {
        Ok(webhook
            .log()?
            .contains("all objects are unchanged: nothing is applied"))
    })
    .await
    .unwrap();
    until_no_writes(&cluster).await;
    check_only_lists(&cluster, position);
    // After a restart, the reconciler does not have the requests of the last applies, so it writes
    // all objects.
    assert_eq!(written_by(&cluster, &three, &running).await, all);
    let mut changed = config_maps([3, 8]);
    changed.insert("customresourcedefinitions/jugs.example.com".to_owned());
    changed.insert("jugs/many".to_owned());
    assert_eq!(written_by(&cluster, &one, &running).await, changed);
    kubectl(&cluster, "delete bundledeployment many --timeout 80s").await;
    assert!(get(&cluster, "namespace many").await.is_none());
}

/// Writes a text that no content has into the ConfigMap.
async fn change(cluster: &Cluster, number: usize) {
    let patch = r#"{"data":{"text":"evil"}}"#;
    let line = format!("patch configmap item-{number} -n many --type=merge --patch={patch}");
    kubectl(cluster, &line).await;
}

/// Waits until each ConfigMap has the text of its content.
async fn until_texts(cluster: &Cluster, changed: &[usize], tag: &str) {
    wait::until_true(LONG, "all ConfigMaps have their text", || async {
        let list = get(cluster, "configmaps -n many").await.unwrap_or_default();
        let items = list["items"].as_array().cloned().unwrap_or_default();
        for number in 0..CONFIG_MAPS {
            let expected = if changed.contains(&number) {
                tag
            } else {
                "first"
            };
            let name = format!("item-{number}");
            let item = items.iter().find(|item| item["metadata"]["name"] == name);
            let text = item.map(|item| &item["data"]["text"]);
            if text != Some(&json!(expected)) {
                anyhow::bail!("{name} has the text {text:?} instead of {expected}");
            }
        }
        Ok(true)
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn object_that_another_user_changes_before_or_during_an_upgrade_is_restored() {
    let (cluster, _webhook) = staged(Cluster::builder().audit(true)).await;
    let one = content(&cluster, "first", &[], "holds-water").await;
    let two = content(&cluster, "second", &[3, 7], "holds-water").await;
    written_by(&cluster, &one, &json!({})).await;

    // The BundleDeployment is paused, so that the reconciler does not restore these objects before
    // the upgrade.
    apply(
        &cluster,
        &deployment("many", &one, &json!({"paused": true})),
    )
    .await;
    until_reason(&cluster, DEPLOYMENT, "Progressing", "Paused").await;
    change(&cluster, 5).await;
    kubectl(&cluster, "delete configmap item-6 -n many").await;
    let written = written_by(&cluster, &two, &json!({"paused": false})).await;
    let mut expected = config_maps([3, 5, 6, 7]);
    expected.insert("jugs/many".to_owned());
    assert_eq!(written, expected);
    until_texts(&cluster, &[3, 7], "second").await;

    // The changes begin before the upgrade, and end after the upgrade has begun.
    let changes = async {
        for number in 0..CONFIG_MAPS {
            change(&cluster, number).await;
        }
    };
    let upgrade = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        apply(&cluster, &deployment("many", &one, &json!({}))).await;
        installed(&cluster, "many").await;
    };
    tokio::join!(changes, upgrade);
    until_texts(&cluster, &[], "first").await;
    until(&cluster, DEPLOYMENT, "Ready", "True").await;
}
