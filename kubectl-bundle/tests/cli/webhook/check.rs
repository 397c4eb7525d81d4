//! `check` offline, and with a cluster and a registry: the content of images, and policies with
//! unreadable Secrets. The API server of these tests returns responses from a list.

use std::io::Read as _;

use axum::http::Method;
use bundle_core::format::Files;
use bundle_core::package;
use bundle_testkit::registry::{Fault, Registry};
use serde_json::{Value, json};

use crate::context::{CONFIG_MAP, Context, PACKAGE};
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;

/// A Deployment with an unknown field and a number of replicas, and the autoscaler that scales it.
const APP: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: a, image: 'registry.example.com/b:1', resource: {}}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: default}
spec: {maxReplicas: 3, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
";

/// ConfigMap without a namespace.
const WITHOUT_NAMESPACE: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n";

/// Pushes a package without the checks of `build`, and returns its reference.
fn publish(registry: &Registry, manifests: &str) -> String {
    let files: Files = [("bundle.yaml", PACKAGE), ("manifests/web.yaml", manifests)]
        .map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()))
        .into();
    let package = package::parse(PACKAGE.as_bytes()).unwrap();
    let packed = bundle_oci::pack::pack(&files, &package).unwrap();
    for blob in packed.blobs() {
        let mut bytes = Vec::new();
        blob.reader().unwrap().read_to_end(&mut bytes).unwrap();
        registry.put_blob("team/web", bytes);
    }
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    for name in ["1.4.0", packed.digest.as_str()] {
        registry.put_manifest("team/web", name, media_type, &packed.manifest.bytes);
    }
    registry.reference(&format!("team/web@{}", packed.digest))
}

/// Writes `web.yaml`: a BundleDeployment of this content.
fn deployment(context: &Context, reference: &str, more: &str) {
    context.write(
        "web.yaml",
        format!(
            "apiVersion: core.rukpak.io/v1alpha1\nkind: BundleDeployment\nmetadata: {{name: web}}\nspec:\n  provisionerClassName: production\n{more}\
             \x20 template: {{spec: {{provisionerClassName: production, source: {{type: image, image: {{ref: '{reference}'}}}}}}}}\n"
        ),
    );
}

fn object(kind: &str, group: &str, rest: &Value) -> Value {
    let mut object =
        json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {}, "spec": {}});
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// Returns the responses to one `check` of the BundleDeployment, by a user with verb `use` on its
/// class.
fn answers(provisioner: &str, policies: &[Value]) -> Vec<(Method, &'static str, u16, Value)> {
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    let identity = json!({"status": {"userInfo": {"username": "ana"}}});
    let identity = object("SelfSubjectReview", "authentication.k8s.io", &identity);
    let allowed = json!({"status": {"allowed": true}});
    let allowed = object("SelfSubjectAccessReview", "authorization.k8s.io", &allowed);
    let policies = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicyList", "metadata": {}, "items": policies});
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": "production"},
        "spec": {"provisioner": provisioner, "serviceAccount": {"namespace": "bundle-system", "name": "installer"}, "signatures": "IfPolicy"},
    });
    let class = (Method::GET, "/provisionerclasses/production", 200, class);
    vec![
        (Method::GET, "/version", 200, version),
        (Method::POST, "/selfsubjectreviews", 201, identity),
        (Method::GET, "/signaturepolicies", 200, policies),
        (
            Method::GET,
            "/bundledeployments/web",
            404,
            status(404, "NotFound", "not found"),
        ),
        class.clone(),
        class,
        (Method::POST, "/selfsubjectaccessreviews", 201, allowed),
    ]
}

const PLAIN_PROVISIONER: &str = "core.rukpak.io/plain";

fn check(context: &Context) -> String {
    context.run(&["check", "-f", "web.yaml"])
}

#[test]
fn would_reject() {
    let mut context = Context::new();
    let registry = context.registry();
    deployment(&context, &publish(&registry, APP), "");
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = check(&context);
    assert!(
        checked.starts_with(
            "exit code: 3\n----- stdout -----\nbundledeployment.core.rukpak.io/web refused\n"
        ),
        "{checked}"
    );
    for part in [
        "/manifests/web.yaml:1: Deployment.apps/default/web: spec.template.spec.containers[0].resource: unknown field; did you mean `resources`? [BUNDLE-CHECK-013]",
        "HorizontalPodAutoscaler.autoscaling/default/web scales the object, and the manifest also sets the number of replicas [BUNDLE-CHECK-014]",
        "spec.drift.ignore: [{kind: Deployment.apps, namespace: default, name: web, fields: [/spec/replicas]}]",
    ] {
        assert!(checked.contains(part), "{part}:\n{checked}");
    }

    // If the object has the drift rule that the warning proposes, the warning no longer appears.
    let valid = APP.replace(", resource: {}", "");
    let rule = "  drift: {ignore: [{kind: Deployment.apps, namespace: default, name: web, fields: [/spec/replicas]}]}\n";
    deployment(&context, &publish(&registry, &valid), rule);
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = check(&context);
    assert!(checked.starts_with("exit code: 0\n"), "{checked}");
    assert!(!checked.contains("BUNDLE-CHECK-"), "{checked}");
}

#[test]
fn check_rejects_objects_with_owner_references() {
    let mut context = Context::new();
    let registry = context.registry();
    let owned = CONFIG_MAP.replace(
        "namespace: default",
        "namespace: default, ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: a, uid: b}]",
    );
    deployment(&context, &publish(&registry, &owned), "");
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = check(&context);
    assert!(checked.starts_with("exit code: 3\n"), "{checked}");
    assert!(
        checked.contains("ConfigMap/web: metadata.ownerReferences"),
        "{checked}"
    );
}

#[test]
fn check_uses_the_target_namespace_for_objects_without_namespace() {
    let mut context = Context::new();
    let registry = context.registry();
    let reference = publish(&registry, WITHOUT_NAMESPACE);
    deployment(&context, &reference, "");
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = check(&context);
    assert!(checked.starts_with("exit code: 3\n"), "{checked}");
    assert!(
        checked.contains("1 object has no namespace: ConfigMap/web [BUNDLE-INSTALL-060]"),
        "{checked}"
    );

    deployment(
        &context,
        &reference,
        "  targetNamespace: team-a\n  createNamespace: true\n",
    );
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = check(&context);
    assert!(
        checked.starts_with(
            "exit code: 0\n----- stdout -----\nbundledeployment.core.rukpak.io/web admitted\n"
        ),
        "{checked}"
    );
    assert!(!checked.contains("namespace"), "{checked}");
}

#[test]
fn check_is_unknown_if_the_registry_does_not_send_the_content() {
    let mut context = Context::new();
    let registry = context.registry();
    let reference = publish(&registry, CONFIG_MAP);
    deployment(&context, &reference, "");
    registry.set_fault(Some(Fault::CutBlob));
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let arguments = ["check", "-f", "web.yaml", "--registry-timeout", "30s"];
    let checked = context.run(&arguments);
    assert!(
        checked.starts_with(
            "exit code: 4\n----- stdout -----\nbundledeployment.core.rukpak.io/web unknown\n"
        ),
        "{checked}"
    );
    assert!(
        checked.contains("spec.template.spec.source.image.ref: ")
            && checked.contains("[BUNDLE-REGISTRY-001]"),
        "{checked}"
    );

    deployment(
        &context,
        &PINNED.replace("registry.example.com", "127.0.0.1:9"),
        "",
    );
    cluster(&mut context, answers(PLAIN_PROVISIONER, &[]));
    let checked = context.run(&arguments);
    assert!(checked.starts_with("exit code: 4\n"), "{checked}");
    assert!(checked.contains("[BUNDLE-REGISTRY-001]"), "{checked}");
}

#[test]
fn check_skips_content_of_other_provisioners_and_lists_what_is_not_checked() {
    let mut context = Context::new();
    let registry = context.registry();
    deployment(&context, &publish(&registry, APP), "");
    cluster(&mut context, answers("example.com/other", &[]));
    let checked = check(&context);
    assert!(checked.starts_with("exit code: 0\n"), "{checked}");
    assert!(!checked.contains("BUNDLE-CHECK-"), "{checked}");
    assert!(
        checked.contains("not checked: ")
            && checked.contains(": its objects, because the provisioner of class"),
        "{checked}"
    );

    let git = "spec: {provisionerClassName: production, source: {type: git, git: {repository: 'https://git.example.com/web.git', ref: {tag: v1}}}}";
    context.write(
        "web.yaml",
        format!(
            "apiVersion: core.rukpak.io/v1alpha1\nkind: Bundle\nmetadata: {{name: web}}\n{git}\n"
        ),
    );
    let mut told = answers(PLAIN_PROVISIONER, &[]);
    told[3].1 = "/bundles/web";
    cluster(&mut context, told);
    let checked = check(&context);
    assert!(
        checked.contains("not checked: the objects in its content, which is of source type git"),
        "{checked}"
    );
}

/// Returns a policy for all images. Its key is in a Secret.
fn policy() -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy", "metadata": {"name": "releases"},
        "spec": {"images": [{"glob": "**"}], "authorities": [{"name": "k", "key": {"secretRef": {"name": "release-key"}}}]},
    })
}

#[test]
fn check_is_unknown_without_permission_to_read_the_secret_of_a_policy() {
    let mut context = Context::new();
    let registry = context.registry();
    let forbidden = || {
        (
            Method::GET,
            "/namespaces/bundle-system/secrets/release-key",
            403,
            status(
                403,
                "Forbidden",
                "secrets \"release-key\" is forbidden: User \"ana\" cannot get resource \"secrets\"",
            ),
        )
    };
    // The policy is in the file.
    context.write("policy.yaml", policy().to_string());
    let mut told = answers(PLAIN_PROVISIONER, &[]);
    told.push(forbidden());
    cluster(&mut context, told);
    let checked = context.run(&["check", "-f", "policy.yaml"]);
    assert!(
        checked.starts_with(
            "exit code: 4\n----- stdout -----\nsignaturepolicy.core.rukpak.io/releases unknown\n"
        ),
        "{checked}"
    );
    assert!(
        checked.contains("cannot read Secret bundle-system/release-key: ")
            && checked.contains("secrets \"release-key\" is forbidden"),
        "{checked}"
    );
    assert!(
        checked.contains("hint: the webhook looks this up with its own permissions"),
        "{checked}"
    );

    // The policy is in the cluster, and matches the content of the file.
    deployment(&context, &publish(&registry, CONFIG_MAP), "");
    let mut told = answers(PLAIN_PROVISIONER, &[policy()]);
    told.push(forbidden());
    cluster(&mut context, told);
    let checked = check(&context);
    assert!(
        checked.starts_with(
            "exit code: 4\n----- stdout -----\nbundledeployment.core.rukpak.io/web unknown\n"
        ),
        "{checked}"
    );
    assert!(
        checked.contains("cannot read Secret bundle-system/release-key"),
        "{checked}"
    );
}

#[test]
fn offline_check_reports_errors_of_the_file() {
    let context = Context::new();
    let object = context.stdout(&["deploy", "web", PINNED, "--dry-run", "-o", "yaml"]);
    context.write("web.yaml", &object);
    kb_snapshot!(context, ["check", "-f", "web.yaml", "--offline"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web nothing found
    ----- stderr -----
    not checked: class core-rukpak-io-plain: its existence, its requirements, and your permission to use it
    not checked: registry.example.com/web@sha256:9f86d081...: its content, its signatures, and its compatibility with the cluster's version
    ");
    context.write(
        "bad.yaml",
        format!(
            "{}\n---\n{}",
            object.replace("ref: registry.example.com/", "ref: "),
            object.replace("type: image", "type: git")
        ),
    );
    kb_snapshot!(context, ["check", "-f", "bad.yaml", "--offline"], @r#"
    exit code: 3
    ----- stdout -----
    bundledeployment.core.rukpak.io/web refused
    bundledeployment.core.rukpak.io/web refused
    ----- stderr -----
    error: bad.yaml:1: spec.template.spec.source.image.ref: invalid reference `web@sha256:9f86d081...`: it has no registry [BUNDLE-REFERENCE-001]
      hint: write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0
    error: bad.yaml:15: spec.template.spec.source.git: bundledeployment.spec.template.spec.source.git must be set for source type "git" [BUNDLE-REVIEW-002]
    "#);
    kb_snapshot!(context, ["check", "-f", "bad.yaml", "--offline", "-o", "json"], @r#"
    exit code: 3
    ----- stdout -----
    [
      {
        "object": "bundledeployment.core.rukpak.io/web",
        "file": "bad.yaml",
        "line": 1,
        "verdict": "Rejected",
        "findings": [
          {
            "code": "BUNDLE-REFERENCE-001",
            "severity": "error",
            "where": {
              "field": "spec.template.spec.source.image.ref"
            },
            "message": "invalid reference `web@sha256:9f86d081...`: it has no registry",
            "hint": "write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0"
          }
        ]
      },
      {
        "object": "bundledeployment.core.rukpak.io/web",
        "file": "bad.yaml",
        "line": 15,
        "verdict": "Rejected",
        "findings": [
          {
            "code": "BUNDLE-REVIEW-002",
            "severity": "error",
            "where": {
              "field": "spec.template.spec.source.git"
            },
            "message": "bundledeployment.spec.template.spec.source.git must be set for source type \"git\""
          }
        ]
      }
    ]
    ----- stderr -----
    "#);
    kb_snapshot!(context, ["check", "-f", "nowhere.yaml", "--offline"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: nowhere.yaml: cannot read the file [BUNDLE-USAGE-002]
      caused by: no such file or folder
      hint: check the path and its permissions
    ");
    context.write(
        "policy.yaml",
        "apiVersion: core.rukpak.io/v1alpha1\nkind: SignaturePolicy\nmetadata: {name: releases}\nspec:\n  images: [{glob: 'registry.example.com/**'}]\n  authorities: [{name: k, key: {secretRef: {name: release-key}}}]\n",
    );
    kb_snapshot!(context, ["check", "-f", "policy.yaml", "--offline"], @r"
    exit code: 0
    ----- stdout -----
    signaturepolicy.core.rukpak.io/releases nothing found
    ----- stderr -----
    not checked: Secret bundle-system/release-key: the key in it
    ");
    context.write("mess.yaml", "a: 1\na: 2\n");
    kb_snapshot!(context, ["check", "-f", "mess.yaml"], @r"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    error: mess.yaml:2: the key `a` appears twice [BUNDLE-FORMAT-005]
      hint: remove one of the two: parsers disagree about which one applies
    ");
    kb_snapshot!(context, ["check", "-f", "web.yaml"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: no kubeconfig found: [DIR]/home/.kube/config does not exist [BUNDLE-CLUSTER-002]
      hint: set --kubeconfig or KUBECONFIG
    ");
}
