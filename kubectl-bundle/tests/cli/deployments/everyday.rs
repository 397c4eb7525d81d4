//! Everyday use of a cluster: upgrades keep settings, and waits stop at permanent failures.

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::Context;
use crate::deployments::cluster::{PINNED, cluster, status};
use crate::kb_snapshot;
use crate::package::init::{ANNOTATIONS, CSV};

const PATH: &str = "/bundledeployments/web";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// Digest of `{}`.
const EMPTY: &str = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";

/// Returns a BundleDeployment that this program applied with `--class production` and other flags.
/// `kubectl edit` owns `spec.paused`.
fn deployed(conditions: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "generation": 1, "resourceVersion": "1", "managedFields": [
            {"manager": "kubectl-bundle", "operation": "Apply", "apiVersion": "core.rukpak.io/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": {
                "f:spec": {
                    "f:collision": {}, "f:provisionerClassName": {},
                    "f:serviceAccount": {"f:name": {}, "f:namespace": {}},
                    "f:template": {"f:spec": {"f:provisionerClassName": {}, "f:source": {"f:type": {}, "f:image": {"f:ref": {}, "f:pullSecret": {}}}}},
                },
            }},
            {"manager": "kubectl-edit", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:paused": {}}}},
        ]},
        "spec": {
            "provisionerClassName": "production",
            "collision": "Adopt",
            "paused": false,
            "serviceAccount": {"namespace": "team-a", "name": "deployer"},
            "template": {"spec": {"provisionerClassName": "production", "source": {"type": "image", "image": {
                "ref": PINNED.replace("9f86", "0000"), "pullSecret": "regcred",
            }}}},
        },
        "status": {"observedGeneration": 1, "conditions": conditions},
    })
}

/// Returns the BundleDeployment after the apply.
fn with_new_content(conditions: &Value) -> Value {
    let mut object = deployed(conditions);
    object["spec"]["template"]["spec"]["source"]["image"]["ref"] = PINNED.into();
    object
}

#[test]
fn upgrade_keeps_settings_without_flags() {
    let mut context = Context::new();
    let none = json!([]);
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, deployed(&none)),
            (Method::PATCH, PATH, 200, with_new_content(&none)),
            (Method::GET, PATH, 200, deployed(&none)),
            (Method::PATCH, PATH, 200, with_new_content(&none)),
        ],
    );
    kb_snapshot!(context, ["deploy", "web", PINNED], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web configured
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
      spec.template.spec.source.image.ref: registry.example.com/web@sha256:0000d081... -> registry.example.com/web@sha256:9f86d081...
    "#);
    let mut expected = with_new_content(&none)["spec"].take();
    // The apply does not contain fields of other field managers.
    expected.as_object_mut().unwrap().remove("paused");
    assert_eq!(applied.lock().unwrap()[0]["spec"], expected);

    let arguments = [
        "deploy",
        "web",
        PINNED,
        "--class",
        "staging",
        "--service-account=",
        "--pull-secret=",
        "--drift",
        "report",
        "--paused",
        "-n",
        "team-a",
        "--create-namespace",
        "--deletion",
        "orphan",
        "--custom-resources",
        "delete",
    ];
    let told = context.run(&arguments);
    assert!(
        told.contains(
            "web changes from class production to class staging: this requires verb use on both \
            classes\n"
        ),
        "{told}"
    );
    assert_eq!(
        applied.lock().unwrap()[1]["spec"],
        json!({
            "provisionerClassName": "staging",
            "collision": "Adopt",
            "drift": {"mode": "Report"},
            "paused": true,
            "targetNamespace": "team-a",
            "createNamespace": true,
            "deletion": {"objects": "Orphan", "customResources": "Delete"},
            "template": {"spec": {"provisionerClassName": "staging", "source": {"type": "image", "image": {"ref": PINNED}}}},
        })
    );
}

fn conditions(reason: &str, message: &str) -> Value {
    let one = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    json!([
        one("Installed", "False"),
        one("Progressing", "True"),
        one("Ready", "False")
    ])
}

fn list(items: &[Value]) -> Value {
    json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeploymentList", "metadata": {"resourceVersion": "7"}, "items": items})
}

fn event(code: &str, message: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": [{
        "metadata": {"name": "web.1", "namespace": "default"}, "involvedObject": {}, "type": "Warning", "reason": code, "message": message,
    }]})
}

#[test]
fn wait_stops_at_permanent_failures() {
    let mut context = Context::new();
    let exists = "ConfigMap/team-a/web exists and no bundle manages it; adopt it with --collision Adopt (spec.collision: Adopt)";
    let failing = with_new_content(&conditions("InstallFailed", exists));
    let away = with_new_content(&conditions("InstallFailed", "cannot reach the registry"));
    let refused = with_new_content(&conditions(
        "RemovalRefused",
        "the installed objects stay while custom resources exist that this BundleDeployment did not install: queues.shop.example.com (3 Queues)",
    ));
    cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 404, status(404, "NotFound", "not found")),
            (Method::PATCH, PATH, 201, failing.clone()),
            (Method::GET, "/bundledeployments", 200, list(&[failing])),
            (
                Method::GET,
                "/events",
                200,
                event("BUNDLE-INSTALL-002", exists),
            ),
            // The failure is transient, so the command waits. The server ends the watch
            // immediately.
            (Method::GET, PATH, 404, status(404, "NotFound", "not found")),
            (Method::PATCH, PATH, 201, away.clone()),
            (Method::GET, "/bundledeployments", 200, list(&[away])),
            (
                Method::GET,
                "/events",
                200,
                event("BUNDLE-INSTALL-012", "cannot reach the registry"),
            ),
            (Method::GET, "/bundledeployments", 200, json!({})),
            (Method::GET, "/bundledeployments", 200, list(&[])),
            // bundle-webhook rejected the deletion.
            (Method::GET, PATH, 200, deployed(&json!([]))),
            (Method::DELETE, PATH, 200, refused.clone()),
            (Method::GET, "/bundledeployments", 200, list(&[refused])),
            (
                Method::GET,
                "/events",
                403,
                status(403, "Forbidden", "no events for you"),
            ),
        ],
    );
    kb_snapshot!(context, ["deploy", "web", PINNED, "--wait", "-q"], @r"
    exit code: 3
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created
    ----- stderr -----
    error: bundledeployment web: ConfigMap/team-a/web exists and no bundle manages it; adopt it with --collision Adopt (spec.collision: Adopt) [BUNDLE-INSTALL-002]
      hint: retries cannot succeed without a change; details: kubectl bundle status web
    ");
    kb_snapshot!(context, ["deploy", "web", PINNED, "--wait"], @r#"
    exit code: 1
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    waiting for web to be installed
    web: Installed=False InstallFailed: cannot reach the registry
    error: bundledeployment web was deleted during the wait [BUNDLE-CLUSTER-006]
    "#);
    kb_snapshot!(context, ["delete", "web"], @r#"
    exit code: 3
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    ----- stderr -----
    web: nothing is installed
    waiting for web to be gone
    error: bundledeployment web: the installed objects stay while custom resources exist that this BundleDeployment did not install: queues.shop.example.com (3 Queues) [BUNDLE-CLUSTER-007]
      hint: retries cannot succeed without a change; details: kubectl bundle status web
    "#);
}

#[test]
fn commands_of_other_tools_hint_at_the_verb() {
    let context = Context::new();
    kb_snapshot!(context, ["install", "web", PINNED], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `install` handles bundle-webhook itself and has no NAME argument, but got `web` [BUNDLE-USAGE-001]
      hint: for a bundle use kubectl bundle deploy NAME REF
    ");
    kb_snapshot!(context, ["uninstall", "web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `uninstall` handles bundle-webhook itself and has no NAME argument, but got `web` [BUNDLE-USAGE-001]
      hint: for a bundle use kubectl bundle delete NAME
    ");
    kb_snapshot!(context, ["apply", "web", PINNED], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `apply` is not a verb of kubectl bundle [BUNDLE-USAGE-001]
      hint: use kubectl bundle deploy NAME REF
    ");
    kb_snapshot!(context, ["install"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --image: no image of bundle-webhook is published yet, so --image is required [BUNDLE-USAGE-001]
      hint: build the image, push the image, and name it by its digest: --image REGISTRY/REPOSITORY@sha256:DIGEST
    ");
    kb_snapshot!(context, ["template", "web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `template` is not a verb of kubectl bundle [BUNDLE-USAGE-001]
      hint: use kubectl bundle render REF|DIR
    ");
    let help = context.stdout(&["help", "deploy"]);
    assert!(help.contains("Usage: kubectl bundle deploy"), "{help}");
}

#[test]
fn renders_objects_in_installation_order() {
    let context = Context::new().with_bundle();
    context.write(
        "web/manifests/zz.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n",
    );
    kb_snapshot!(context, ["render", "web"], @r"
    exit code: 0
    ----- stdout -----
    ---
    apiVersion: v1
    kind: Namespace
    metadata:
      labels:
        applyset.kubernetes.io/part-of: applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1
        core.rukpak.io/owner-kind: BundleDeployment
        core.rukpak.io/owner-name: web
      name: default
    ---
    apiVersion: v1
    data:
      greeting: hello
    kind: ConfigMap
    metadata:
      labels:
        applyset.kubernetes.io/part-of: applyset-4uZSPPIUWPhxLAKC2gPZRT4IA4k52KdJ_byJlyYF7bg-v1
        core.rukpak.io/owner-kind: BundleDeployment
        core.rukpak.io/owner-name: web
      name: web
      namespace: default
    ----- stderr -----
    ");
    context.stdout(&["build", "web", "--to", "web.oci"]);
    let built = context.stdout(&["render", "web.oci", "-o", "json"]);
    let list: Value = serde_json::from_str(&built).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][1]["metadata"]["name"], "web");
}

#[test]
fn renders_objects_with_the_name_and_namespace_of_their_deployment() {
    let context = Context::new().with_bundle();
    context.write(
        "web/manifests/zz.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: homeless}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: default}\n",
    );
    let arguments = [
        "render", "web", "--name", "shop", "-n", "team-a", "-o", "json",
    ];
    let list: Value = serde_json::from_str(&context.stdout(&arguments)).unwrap();
    let mut shown: Vec<[&str; 3]> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let metadata = &object["metadata"];
            let owner = &metadata["labels"]["core.rukpak.io/owner-name"];
            [&metadata["name"], &metadata["namespace"], owner]
                .map(|text| text.as_str().unwrap_or_default())
        })
        .collect();
    shown.sort_unstable();
    assert_eq!(
        shown,
        [
            ["default", "", "shop"],
            ["homeless", "team-a", "shop"],
            ["web", "default", "shop"],
        ]
    );
}

#[test]
fn completes_for_kubectl() {
    let mut context = Context::new();
    let answer = || {
        let mut one = deployed(&json!([]));
        one["apiVersion"] = json!("meta.k8s.io/v1");
        one["kind"] = json!("PartialObjectMetadata");
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": [one]})
    };
    cluster(
        &mut context,
        vec![(Method::GET, "/bundledeployments", 200, answer())],
    );
    kb_snapshot!(context, ["__complete", "--", "status", ""], @r"
    exit code: 0
    ----- stdout -----
    web
    :4
    ----- stderr -----
    ");
    // An unreachable cluster causes no delay.
    kb_snapshot!(context, ["__complete", "--", "delete", ""], @r"
    exit code: 0
    ----- stdout -----
    :4
    ----- stderr -----
    ");
    kb_snapshot!(context, ["__complete", "--", "deploy", "web", "--coll"], @r"
    exit code: 0
    ----- stdout -----
    --collision	Treatment of an existing object without an owner
    :4
    ----- stderr -----
    ");
    kb_snapshot!(context, ["__complete", "--", "build", ""], @r"
    exit code: 0
    ----- stdout -----
    :0
    ----- stderr -----
    ");
}

#[test]
fn path_in_place_of_a_reference_is_an_error() {
    let context = Context::new().with_bundle();
    kb_snapshot!(context, ["deploy", "web", "./web"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: `./web` is a path on this machine, but a reference in a registry is required [BUNDLE-REFERENCE-001]
      hint: push it first: kubectl bundle push ./web REGISTRY/REPOSITORY:TAG
    ");
    kb_snapshot!(context, ["render", "wbe"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: invalid reference `wbe`: it has no registry, and no such file or folder exists [BUNDLE-REFERENCE-001]
      hint: write REGISTRY/REPOSITORY:TAG or REGISTRY/REPOSITORY@sha256:…, such as registry.example.com/team/web:1.4.0
    ");
}

#[test]
fn rejects_signing_with_a_public_key_before_the_password_prompt() {
    let mut context = Context::new().with("BUNDLE_PASSWORD", "");
    let registry = context.registry();
    let web = registry.reference("web:1.4.0");
    context.stdout(&["keys", "generate", "--output-key-prefix", "bundle"]);
    let told = Context::run(&context, &["sign", &web, "--key", "bundle.pub"]);
    assert!(
        told.contains("it is a public key, which cannot sign"),
        "{told}"
    );
    assert!(told.starts_with("exit code: 1\n"), "{told}");
}

#[test]
fn saves_a_package_without_images() {
    let mut context = Context::new().with_bundle();
    let registry = context.registry();
    let web = format!("{}/web:1.4.0", registry.host());
    context.stdout(&["push", "web", &web]);
    let told = context.run(&["save", &web, "--images", "--to", "web.tar"]);
    assert!(told.starts_with("exit code: 0\n"), "{told}");
    assert!(told.contains("web:1.4.0 has no images"), "{told}");
}

#[test]
fn deploy_retries_after_a_concurrent_write() {
    let mut context = Context::new();
    let before = deployed(&json!([]));
    let mut changed = before.clone();
    changed["metadata"]["resourceVersion"] = json!("2");
    let ours = &mut changed["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"];
    ours["f:drift"] = json!({"f:mode": {}});
    changed["spec"]["drift"] = json!({"mode": "Report"});
    let stale = "Operation cannot be fulfilled on bundledeployments.core.rukpak.io \"web\": the object has been modified; please apply your changes to the latest version and try again";
    let applied = cluster(
        &mut context,
        vec![
            (Method::GET, PATH, 200, before),
            (Method::PATCH, PATH, 409, status(409, "Conflict", stale)),
            (Method::GET, PATH, 200, changed.clone()),
            (Method::PATCH, PATH, 200, changed),
        ],
    );
    context.stdout(&["deploy", "web", PINNED]);
    let applied = applied.lock().unwrap();
    let versions: Vec<&Value> = applied
        .iter()
        .map(|object| &object["metadata"]["resourceVersion"])
        .collect();
    assert_eq!(versions, ["1", "2"]);
    // The second apply contains the concurrent change, so the change is not removed.
    assert_eq!(applied[1]["spec"]["drift"]["mode"], "Report");
}

#[test]
fn default_class_follows_the_format_of_the_package() {
    let mut context = Context::new();
    let registry = context.registry();
    context.write("cache/metadata/annotations.yaml", ANNOTATIONS);
    context.write("cache/manifests/csv.yaml", CSV);
    let reference = format!("{}/cache:1", registry.host());
    context.stdout(&["push", "cache", &reference]);
    let chart = format!("{}/chart:1", registry.host());
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST,
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": EMPTY, "size": 2},
        "layers": [], "annotations": {"io.rukpak.core.bundle.format": "helm+v3"},
    });
    registry.put_manifest("chart", "1", MANIFEST, manifest.to_string().as_bytes());
    // The operating system accepts the connection, but no process reads the request.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let digest = format!("sha256:{}", "9".repeat(64));
    let silent_reference = format!("{}/web@{digest}", silent.local_addr().unwrap());
    let class_of = |verb: &str, reference: &str, more: &[&str]| {
        let mut arguments = vec![verb, "cache", reference, "--dry-run=client", "-o", "json"];
        arguments.extend(more);
        let object: Value = serde_json::from_str(&context.stdout(&arguments)).unwrap();
        let template = &object["spec"]["template"]["spec"]["provisionerClassName"];
        if verb == "deploy" {
            assert_eq!(*template, object["spec"]["provisionerClassName"]);
        }
        object["spec"]["provisionerClassName"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let rows: [(&str, &[&str], &str); 4] = [
        (&reference, &[], "core-rukpak-io-registry"),
        (&reference, &["--class", "mine"], "mine"),
        // With a tag, the format is not read, because the content of the tag can change.
        (&reference, &["--keep-tag"], "core-rukpak-io-plain"),
        (&chart, &[], "core-rukpak-io-helm"),
    ];
    for verb in ["deploy", "create"] {
        for (reference, flags, class) in rows {
            let found = class_of(verb, reference, flags);
            assert_eq!(found, class, "{verb} {reference} {flags:?}");
        }
    }
    let found = class_of("deploy", &silent_reference, &[]);
    assert_eq!(found, "core-rukpak-io-plain", "no response");
}
