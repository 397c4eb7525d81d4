//! Tests of reviews of CustomResourceDefinition updates.

use bundle_api::names::{FIELD_MANAGER, LABEL_OWNER_KIND};

use super::*;

const INSTALLER: &str = "system:serviceaccount:bundle-system:installer";

fn definition(uid: &str, labels: &Value, required: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "jugs.example.com", "uid": uid, "labels": labels},
        "spec": {"scope": "Cluster", "versions": [{
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "required": required}},
        }]},
        "status": {"storedVersions": ["v1"]},
    })
}

fn labels() -> Value {
    json!({LABEL_OWNER_KIND: "BundleDeployment", "core.rukpak.io/owner-name": "shop"})
}

fn update(user: &str, live: &Value, new: &Value) -> Value {
    let mut review = review(user, Some(live), new);
    review["request"]["kind"] =
        json!({"group": "apiextensions.k8s.io", "version": "v1", "kind": new["kind"]});
    review
}

fn deployment(exceptions: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1",
        "kind": "BundleDeployment",
        "metadata": {"name": "shop", "uid": "u1"},
        "spec": {
            "provisionerClassName": "plain",
            "template": {"metadata": {}, "spec": bundle()["spec"]},
            "crdUpgrades": {"exceptions": exceptions},
        },
    })
}

/// Returns a cluster in which the BundleDeployment `shop` has installed the definition with uid
/// `crd`.
fn fake() -> Fake {
    Fake {
        deployment: Some(deployment(&json!([]))),
        owner: Some(RecordedOwner {
            uid: "u1".to_owned(),
            deployment: "shop".to_owned(),
            account: Some(("bundle-system".to_owned(), "installer".to_owned())),
        }),
        ..Fake::default()
    }
}

/// Returns true if the webhook admits the update of a definition from `live` to `new` by `user`.
async fn is_allowed(server: &Server, user: &str, live: &Value, new: &Value) -> bool {
    let answer = server.ask("/validate", &update(user, live, new)).await;
    answer["allowed"].as_bool().unwrap()
}

#[tokio::test]
async fn unsafe_update_of_an_installed_definition_is_rejected_with_the_text_of_rukpak() {
    let server = server(fake());
    let live = definition("crd", &labels(), &json!([]));
    let new = definition("crd", &labels(), &json!(["spec"]));
    let answer = server.ask("/validate", &update("ana", &live, &new)).await;
    assert_eq!(
        (&answer["allowed"], &answer["status"]["code"]),
        (&json!(false), &json!(403))
    );
    let message = answer["status"]["message"].as_str().unwrap();
    for text in [
        r#"failed to validate safety of UPDATE for CRD "jugs.example.com" (NOTE: to disable this validation, set the "core.rukpak.io/safe-crd-upgrade-validation" annotation to "false"): error validating existing CRs against new CRD's schema for "jugs.example.com": "#,
        "BundleDeployment shop",
        "failed checks: Required",
    ] {
        assert!(message.contains(text), "{message}");
    }
    // The unsafe update also removes the label.
    let unlabelled = definition("crd", &json!({}), &json!(["spec"]));
    assert!(!is_allowed(&server, "ana", &live, &unlabelled).await);
    // The name of another owner in the labels has no effect.
    let renamed =
        json!({LABEL_OWNER_KIND: "BundleDeployment", "core.rukpak.io/owner-name": "../x"});
    let renamed = definition("crd", &renamed, &json!([]));
    assert!(!is_allowed(&server, "ana", &renamed, &new).await);
    // The annotation of RukPak disables the check.
    let mut disabled = new.clone();
    disabled["metadata"]["annotations"] =
        json!({"core.rukpak.io/safe-crd-upgrade-validation": "false"});
    assert!(is_allowed(&server, "ana", &live, &disabled).await);
}

#[tokio::test]
async fn safe_updates_and_other_requests_need_no_lookup() {
    let server = server(Fake::default());
    let live = definition("crd", &labels(), &json!(["spec"]));
    let new = definition("crd", &labels(), &json!([]));
    assert!(is_allowed(&server, "ana", &live, &new).await);
    // The definition has no owner labels, neither before nor after the update.
    let (from, to) = (json!([]), json!(["spec"]));
    let unlabelled = |required| definition("crd", &json!({"a": "b"}), required);
    assert!(is_allowed(&server, "ana", &unlabelled(&from), &unlabelled(&to)).await);
    let mut status = update("ana", &new, &live);
    status["request"]["subResource"] = "status".into();
    assert_eq!(server.ask("/validate", &status).await["allowed"], true);
    assert_eq!(server.questions(), 0);
    // The inventories cannot be read, so the owner of the definition is unknown.
    let answer = server.ask("/validate", &update("ana", &new, &live)).await;
    assert_eq!(answer["status"]["code"], 503);
    assert_eq!(answer["auditAnnotations"]["codes"], "BUNDLE-REVIEW-076");
}

#[tokio::test]
async fn label_alone_makes_no_definition_an_object_of_a_deployment() {
    let (from, to) = (json!([]), json!(["spec"]));
    let server = server(fake());
    // The inventory records another definition. The owner labels of the updated definition are
    // forged.
    let [live, new] = [&from, &to].map(|required| definition("other", &labels(), required));
    assert!(is_allowed(&server, "ana", &live, &new).await);
    // The recorded BundleDeployment was deleted and created again.
    let mut recreated = fake();
    recreated.deployment.as_mut().unwrap()["metadata"]["uid"] = "u2".into();
    let server = super::server(recreated);
    let [live, new] = [&from, &to].map(|required| definition("crd", &labels(), required));
    assert!(is_allowed(&server, "ana", &live, &new).await);
}

#[tokio::test]
async fn only_the_recorded_service_account_is_exempt() {
    let server = server(fake());
    let live = definition("crd", &labels(), &json!([]));
    let new = definition("crd", &labels(), &json!(["spec"]));
    for (user, expected) in [
        (INSTALLER, true),
        ("system:serviceaccount:team-a:installer", false),
        ("bundle-system:installer", false),
        (OWN, false),
    ] {
        assert_eq!(
            is_allowed(&server, user, &live, &new).await,
            expected,
            "{user}"
        );
    }
    // A dry run with the field manager of the pod stores nothing, so it is admitted.
    for (dry_run, manager, expected) in [
        (true, FIELD_MANAGER, true),
        (false, FIELD_MANAGER, false),
        (true, "kubectl", false),
    ] {
        let mut review = update("ana", &live, &new);
        review["request"]["dryRun"] = dry_run.into();
        review["request"]["options"]["fieldManager"] = manager.into();
        let answer = server.ask("/validate", &review).await;
        assert_eq!(answer["allowed"], expected, "{manager}");
    }
}

#[tokio::test]
async fn exceptions_count_if_the_spec_of_the_owner_was_reviewed() {
    let exceptions =
        json!([{"crd": "jugs.example.com", "check": "Required", "reason": "all jugs have a spec"}]);
    let live = definition("crd", &labels(), &json!([]));
    let new = definition("crd", &labels(), &json!(["spec"]));
    let unsealed = Fake {
        deployment: Some(deployment(&exceptions)),
        ..fake()
    };
    assert!(!is_allowed(&server(unsealed), "ben", &live, &new).await);
    let writer = server(Fake::default());
    let (answer, stored) = writer.write("ana", None, &deployment(&exceptions)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let sealed = server(Fake {
        deployment: Some(stored),
        ..fake()
    });
    let answer = sealed.ask("/validate", &update("ben", &live, &new)).await;
    assert_eq!(answer["allowed"], true, "{answer}");
    let warning = answer["warnings"][0].as_str().unwrap();
    assert!(
        warning.contains(
            "exception of BundleDeployment shop from check Required: all jugs have a spec"
        ),
        "{warning}"
    );
}
