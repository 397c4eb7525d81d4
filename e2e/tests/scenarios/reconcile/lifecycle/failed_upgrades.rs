//! Upgrades that fail after some objects were applied: the applied objects are maintained, and the
//! conditions are correct. `lifecycle` tests successful upgrades.

use std::time::Duration;

use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::reconcile::{
    LONG, apply, bundle_of, condition, deployment, get, kubectl, publish, stage, try_kubectl, until,
};

const SOON: Duration = Duration::from_secs(60);

/// Returns a ConfigMap, a CRD, a custom resource of this CRD, and a Deployment. The ConfigMap is
/// applied first. The custom resource and the Deployment are in the same late phase.
fn content(version: u32, litres: &str) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: both, namespace: half}}
data: {{version: 'v{version}'}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: only-v{version}, namespace: half}}
data: {{version: 'v{version}'}}
---
apiVersion: v1
kind: Secret
metadata: {{name: only-v{version}, namespace: half}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: jugs.half.example.com}}
spec:
  group: half.example.com
  scope: Namespaced
  names: {{kind: Jug, listKind: JugList, plural: jugs, singular: jug}}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {{type: object, properties: {{litres: {{type: integer, maximum: 9}}}}}}
---
apiVersion: half.example.com/v1
kind: Jug
metadata: {{name: jug, namespace: half}}
spec: {{litres: {litres}}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: late, namespace: half, annotations: {{version: 'v{version}'}}}}
spec: {{defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}
"
    )
}

async fn back(cluster: &Cluster, what: &str, pointer: &str, expected: &str) {
    kubectl(cluster, &format!("delete {what} -n half")).await;
    wait::until(SOON, &format!("{what} is back"), || async {
        let found = get(cluster, &format!("{what} -n half")).await;
        let object = get(cluster, "bundledeployment half").await.unwrap();
        // The upgrade has failed, so no condition may report a complete installation. No condition
        // may report the absence of drift either, because not all objects are watched.
        for kind in ["Ready", "Installed"] {
            assert_ne!(condition(&object, kind)["status"], "True", "{object}");
        }
        let drifted = &condition(&object, "Drifted");
        assert_ne!(
            drifted["message"], "every object is as it was applied",
            "{drifted}"
        );
        match found {
            Some(found) if found.pointer(pointer) == Some(&Value::from(expected)) => Ok(Some(())),
            Some(found) => anyhow::bail!("{found}"),
            None => anyhow::bail!("{}", object["status"]["conditions"]),
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_maintained_and_conditions_correct_after_a_partly_failed_upgrade() {
    let (cluster, mut webhook) = stage().await;
    kubectl(&cluster, "create namespace half").await;
    let push = async |tag: &str, content: &str| {
        publish(&cluster, &format!("team/half:{tag}"), |f| {
            bundle_of(f, "half", content)
        })
        .await
    };
    let one = push("1", &content(1, "1")).await;
    let two = push("2", &content(2, "2")).await;
    let three = push("3", &content(2, "3")).await;
    apply(&cluster, &deployment("half", &one, &json!({}))).await;
    until(&cluster, "bundledeployment half", "Ready", "True").await;

    // From now on a policy makes the API server reject version 2 of the custom resource.
    let guard = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "half"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["half.example.com"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["jugs"],
            }]},
            "validations": [{"expression": "object.spec.litres != 2 || (has(request.dryRun) && request.dryRun)", "message": "no two litres"}],
        },
    });
    apply(&cluster, &guard).await;
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "half"},
        "spec": {"policyName": "half", "validationActions": ["Deny"]},
    });
    apply(&cluster, &binding).await;
    wait::until_true(LONG, "the policy is in force", || async {
        let line = "patch jug jug -n half --type=merge --patch={\"spec\":{\"litres\":2}}";
        let answer = cluster.kubectl(line.split(' ')).await?;
        Ok(answer.success().is_err())
    })
    .await
    .unwrap();

    apply(&cluster, &deployment("half", &two, &json!({}))).await;
    let reported = until(&cluster, "bundledeployment half", "Installed", "False").await;
    assert!(reported.contains("no two litres"), "{reported}");
    for restarted in [false, true] {
        if restarted {
            webhook.restart().await.unwrap();
            until(&cluster, "bundledeployment half", "Installed", "False").await;
        }
        // The reconciler restores objects of the new content, of both contents, and of the old
        // content.
        back(&cluster, "configmap only-v2", "/data/version", "v2").await;
        back(&cluster, "configmap both", "/data/version", "v2").await;
        back(&cluster, "configmap only-v1", "/data/version", "v1").await;
        back(&cluster, "secret only-v1", "/metadata/name", "only-v1").await;
        back(
            &cluster,
            "ingress late",
            "/metadata/annotations/version",
            "v1",
        )
        .await;
    }
    apply(&cluster, &deployment("half", &three, &json!({}))).await;
    until(&cluster, "bundledeployment half", "Ready", "True").await;
    let object = get(&cluster, "bundledeployment half").await.unwrap();
    assert_eq!(condition(&object, "Drifted")["status"], "False");
    for gone in ["configmap", "secret"] {
        let old = get(&cluster, &format!("{gone} only-v1 -n half")).await;
        assert_eq!(old, None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deployment_is_not_ready_while_an_object_is_missing() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace half-missing").await;
    let manifests = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one, namespace: half-missing}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: two, namespace: half-missing}\n";
    let reference = publish(&cluster, "team/half-missing:1", |f| {
        bundle_of(f, "half-missing", manifests)
    })
    .await;
    let installed = deployment("half-missing", &reference, &json!({}));
    for more in [
        json!({"drift": {"mode": "Report"}}),
        json!({"paused": true}),
    ] {
        apply(&cluster, &installed).await;
        until(&cluster, "bundledeployment half-missing", "Ready", "True").await;
        apply(&cluster, &deployment("half-missing", &reference, &more)).await;
        until(
            &cluster,
            "bundledeployment half-missing",
            "Drifted",
            "False",
        )
        .await;
        kubectl(&cluster, "delete configmap one -n half-missing").await;
        let reported = until(&cluster, "bundledeployment half-missing", "Drifted", "True").await;
        assert!(
            reported.contains("ConfigMap/half-missing/one"),
            "{reported}"
        );
        until(&cluster, "bundledeployment half-missing", "Ready", "False").await;
    }
}

/// Returns a ConfigMap that all versions contain, a ConfigMap that only this version contains, and
/// an Ingress, which is applied later.
fn short_content(version: u32) -> String {
    format!(
        "apiVersion: v1
kind: ConfigMap
metadata: {{name: both, namespace: half-back}}
data: {{version: 'v{version}'}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: only-v{version}, namespace: half-back}}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: late, namespace: half-back, annotations: {{version: 'v{version}'}}}}
spec: {{defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}
"
    )
}

/// Returns a policy that rejects requests other than dry runs, with its binding.
fn guard(
    name: &str,
    (group, resource, operation): (&str, &str, &str),
    allowed: &str,
) -> [Value; 2] {
    [
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [group], "apiVersions": ["*"], "operations": [operation], "resources": [resource],
                }]},
                "validations": [{"expression": format!("({allowed}) || (has(request.dryRun) && request.dryRun)")}],
            },
        }),
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_of_a_reverted_upgrade_are_deleted_once_permitted() {
    let (cluster, _webhook) = stage().await;
    kubectl(&cluster, "create namespace half-back").await;
    let push = async |version: u32| {
        publish(&cluster, &format!("team/half-back:{version}"), |f| {
            bundle_of(f, "half-back", &short_content(version))
        })
        .await
    };
    let one = push(1).await;
    let two = push(2).await;
    let set = async |reference: &str| {
        apply(&cluster, &deployment("half-back", reference, &json!({}))).await;
    };
    set(&one).await;
    until(&cluster, "bundledeployment half-back", "Ready", "True").await;
    let no_upgrade = guard(
        "half-back-upgrade",
        ("networking.k8s.io", "ingresses", "UPDATE"),
        "object.metadata.namespace != 'half-back' || object.metadata.annotations.version != 'v2'",
    );
    let no_deletion = guard(
        "half-back-deletion",
        ("", "configmaps", "DELETE"),
        "!(request.name in ['only-v2', 'probe'])",
    );
    for object in no_upgrade.iter().chain(&no_deletion) {
        apply(&cluster, object).await;
    }
    // The probe is a separate ConfigMap, because the scenario deletes the probe when the policy
    // permits it.
    let is_kept = async || {
        let line = "create configmap probe -n half-back";
        let _exists = try_kubectl(&cluster, line).await;
        let tried = try_kubectl(&cluster, "delete configmap probe -n half-back").await;
        tried.stderr.contains("half-back-deletion")
    };
    wait::until_true(LONG, "policies are in force", || async {
        let line = "annotate ingress late -n half-back version=v2 --overwrite";
        let upgrade = try_kubectl(&cluster, line).await;
        Ok(!upgrade.is_success() && is_kept().await)
    })
    .await
    .unwrap();
    kubectl(
        &cluster,
        "delete validatingadmissionpolicybinding half-back-deletion",
    )
    .await;
    wait::until_true(LONG, "deletions are allowed", || async {
        Ok(!is_kept().await)
    })
    .await
    .unwrap();
    set(&two).await;
    wait::until_true(LONG, "the upgrade ends half-way", || async {
        Ok(get(&cluster, "configmap only-v2 -n half-back")
            .await
            .is_some())
    })
    .await
    .unwrap();
    until(&cluster, "bundledeployment half-back", "Installed", "False").await;
    for object in &no_deletion {
        apply(&cluster, object).await;
    }
    wait::until_true(LONG, "the policy is in force again", || async {
        Ok(is_kept().await)
    })
    .await
    .unwrap();
    set(&one).await;
    wait::until_true(LONG, "the rejected deletion is reported", || async {
        let object = get(&cluster, "bundledeployment half-back").await.unwrap();
        let ready = condition(&object, "Ready");
        Ok(ready["status"] == "False" && ready["message"].to_string().contains("only-v2"))
    })
    .await
    .unwrap();
    // Although all objects of the former content exist, the rollback is not complete.
    kubectl(&cluster, "annotate bundledeployment half-back look=again").await;
    kubectl(
        &cluster,
        "delete validatingadmissionpolicybinding half-back-deletion",
    )
    .await;
    wait::until_true(LONG, "the object of the upgrade is gone", || async {
        Ok(get(&cluster, "configmap only-v2 -n half-back")
            .await
            .is_none())
    })
    .await
    .unwrap();
    until(&cluster, "bundledeployment half-back", "Ready", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn former_objects_are_restored_after_a_restart_while_the_upgrade_is_rejected() {
    let (cluster, mut webhook) = stage().await;
    kubectl(&cluster, "create namespace half-back").await;
    let push = async |version: u32| {
        publish(&cluster, &format!("team/half-back:{version}"), |f| {
            bundle_of(f, "half-back", &short_content(version))
        })
        .await
    };
    let (one, two) = (push(1).await, push(2).await);
    let set = async |reference: &str| {
        apply(&cluster, &deployment("half-back", reference, &json!({}))).await;
    };
    let until_value = async |what: &str, pointer: &str, expected: &str| {
        wait::until_true(SOON, &format!("{what} has {expected}"), || async {
            let found = get(&cluster, &format!("{what} -n half-back")).await;
            let expected = Value::from(expected);
            Ok(found.is_some_and(|found| found.pointer(pointer) == Some(&expected)))
        })
        .await
        .unwrap();
    };
    let until_rejected = async |flags: &str, is_rejected: bool| {
        wait::until_true(LONG, "the policy has changed", || async {
            let line = format!("annotate ingress late -n half-back version=v2 --overwrite{flags}");
            Ok(try_kubectl(&cluster, &line).await.is_success() != is_rejected)
        })
        .await
        .unwrap();
    };
    set(&one).await;
    until(&cluster, "bundledeployment half-back", "Ready", "True").await;
    let allowed =
        "object.metadata.namespace != 'half-back' || object.metadata.annotations.version != 'v2'";
    let ingresses = ("networking.k8s.io", "ingresses", "UPDATE");
    let mut no_upgrade = guard("half-back-upgrade", ingresses, allowed);
    for object in &no_upgrade {
        apply(&cluster, object).await;
    }
    until_rejected("", true).await;
    until_value("ingress late", "/metadata/annotations/version", "v1").await;
    set(&two).await;
    until_value("configmap only-v2", "/metadata/name", "only-v2").await;
    until(&cluster, "bundledeployment half-back", "Installed", "False").await;

    // The changed policy also rejects dry runs. Therefore the retry fails before its first apply,
    // and the new process does not know which objects the upgrade applied.
    no_upgrade[0]["spec"]["validations"] = json!([{"expression": allowed}]);
    apply(&cluster, &no_upgrade[0]).await;
    until_rejected(" --dry-run=server", true).await;
    webhook.restart().await.unwrap();
    kubectl(&cluster, "delete configmap only-v1 -n half-back").await;
    until_value("configmap only-v1", "/metadata/name", "only-v1").await;
    let change = "annotate ingress late -n half-back version=v0 --overwrite";
    kubectl(&cluster, change).await;
    until_value("ingress late", "/metadata/annotations/version", "v1").await;
    // Objects with values of the new content are not reverted.
    let both = get(&cluster, "configmap both -n half-back").await.unwrap();
    assert_eq!(both["data"]["version"], "v2");
    let object = get(&cluster, "bundledeployment half-back").await.unwrap();
    assert_eq!(condition(&object, "Installed")["status"], "False");

    let binding = "delete validatingadmissionpolicybinding half-back-upgrade";
    kubectl(&cluster, binding).await;
    until_rejected(" --dry-run=server", false).await;
    kubectl(&cluster, "annotate bundledeployment half-back look=again").await;
    until(&cluster, "bundledeployment half-back", "Ready", "True").await;
    let former = get(&cluster, "configmap only-v1 -n half-back").await;
    assert_eq!(former, None);
}
