//! Operators (registry+v1): the namespace of the installation, the watched namespaces, changes of
//! the Deployments, and webhooks. `formats` tests the conversion of registry+v1 bundles.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bundle_testkit::file_server::FileServer;
use e2e::{Cluster, Tool, wait};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::scenarios::content::formats::{self, ANNOTATIONS, CRD, CSV, SERVICE};
use crate::scenarios::reconcile::sources::http;
use crate::scenarios::reconcile::{
    LONG, get, installed, kubectl, publish, stage, try_kubectl, until_reason,
};

/// Namespaced objects of the operator.
const NAMESPACED: [&str; 3] = [
    "serviceaccount cache",
    "service cache",
    "deployment cache-operator",
];

async fn deploy(cluster: &Cluster, reference: &str, more: &str) {
    let line = format!("deploy operator {reference} --wait {more}");
    let words = line.split(' ').filter(|word| !word.is_empty());
    let output = cluster.kubectl_bundle(words).await.unwrap();
    output.success().unwrap();
}

async fn is_in(cluster: &Cluster, namespace: &str) -> bool {
    for object in NAMESPACED {
        let found = get(cluster, &format!("{object} -n {namespace}")).await;
        if found.is_none() {
            return false;
        }
    }
    true
}

/// Returns the namespaces of the subjects of the operator's bindings, without duplicates.
async fn bound_in(cluster: &Cluster) -> Vec<String> {
    let line = "clusterrolebindings -l core.rukpak.io/owner-name=operator";
    let found = get(cluster, line).await.unwrap_or_default();
    let bindings = found["items"].as_array().into_iter().flatten();
    let mut namespaces: Vec<String> = bindings
        .map(|binding| {
            let namespace = &binding["subjects"][0]["namespace"];
            namespace.as_str().unwrap_or_default().to_owned()
        })
        .collect();
    namespaces.sort();
    namespaces.dedup();
    namespaces
}

async fn is_gone(cluster: &Cluster, namespace: &str) {
    wait::until_true(LONG, &format!("namespace {namespace} is gone"), || async {
        let found = get(cluster, &format!("namespace {namespace}")).await;
        Ok(found.is_none())
    })
    .await
    .unwrap();
}

/// Publishes the operator with this ClusterServiceVersion and definition.
async fn publish_operator(cluster: &Cluster, csv: &str) -> String {
    publish(cluster, "team/operator:0.3.0", |folder| {
        formats::write(
            folder,
            &[
                ("metadata/annotations.yaml", ANNOTATIONS),
                ("manifests/csv.yaml", csv),
                ("manifests/crd.yaml", CRD),
            ],
        );
        Ok(())
    })
    .await
}

async fn configure(cluster: &Cluster, config: &Value) {
    let patch = json!({"spec": {"config": config}});
    let line = format!("patch bundledeployment operator --type merge -p {patch}");
    kubectl(cluster, &line).await;
}

/// Waits until the pods of the operator have this value of `olm.targetNamespaces`. Returns the
/// Deployment.
async fn until_watching(cluster: &Cluster, targets: &str) -> Value {
    let line = "deployment cache-operator -n operators";
    wait::until_true(LONG, &format!("the operator watches {targets}"), || async {
        let found = get(cluster, line).await.unwrap_or_default();
        let annotations = &found["spec"]["template"]["metadata"]["annotations"];
        Ok(annotations["olm.targetNamespaces"] == targets)
    })
    .await
    .unwrap();
    get(cluster, line).await.unwrap()
}

/// Returns the namespaces of the Roles of the operator.
async fn roles(cluster: &Cluster) -> Vec<String> {
    let line = "roles -A -l core.rukpak.io/owner-name=operator";
    let found = get(cluster, line).await.unwrap_or_default();
    let roles = found["items"].as_array().into_iter().flatten();
    let namespaces = roles.map(|role| role["metadata"]["namespace"].as_str().unwrap().to_owned());
    namespaces.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_watches_the_configured_namespaces_with_its_changed_deployment() {
    let (cluster, _webhook) = stage().await;
    let csv = CSV.replace(
        "[{type: AllNamespaces, supported: true}]",
        "[{type: OwnNamespace, supported: true}, {type: SingleNamespace, supported: true}]",
    );
    let reference = publish_operator(&cluster, &csv).await;
    kubectl(&cluster, "create namespace operators").await;
    kubectl(&cluster, "create namespace watched").await;

    // The operator does not support all namespaces.
    let line = format!("deploy operator {reference} -n operators");
    let output = cluster.kubectl_bundle(line.split(' ')).await.unwrap();
    output.success().unwrap();
    let what = "bundledeployment operator";
    let message = until_reason(&cluster, what, "Installed", "InvalidConfiguration").await;
    assert!(
        message.contains("AllNamespace install mode must be enabled")
            && message.contains("spec.config.watchNamespace"),
        "{message}"
    );

    let deployment = json!({
        "env": [{"name": "LEVEL", "value": "debug"}], "nodeSelector": {"disk": "ssd"},
        "resources": {"limits": {"memory": "64Mi"}}, "annotations": {"team": "a"},
        "volumes": [{"name": "more", "emptyDir": {}}],
        "volumeMounts": [{"name": "more", "mountPath": "/more"}],
    });
    configure(
        &cluster,
        &json!({"watchNamespace": "operators", "deploymentConfig": deployment}),
    )
    .await;
    installed(&cluster, "operator").await;
    let found = until_watching(&cluster, "operators").await;
    let pod = &found["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(pod["nodeSelector"], json!({"disk": "ssd"}));
    assert_eq!(
        container["env"],
        json!([{"name": "LEVEL", "value": "debug"}])
    );
    assert_eq!(container["resources"]["limits"]["memory"], "64Mi");
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/more");
    assert_eq!(found["metadata"]["annotations"]["team"], "a");
    assert_eq!(roles(&cluster).await, ["operators"]);

    // The configuration names another watched namespace. The operator is updated in place.
    configure(
        &cluster,
        &json!({"watchNamespace": "watched", "deploymentConfig": null}),
    )
    .await;
    let found = until_watching(&cluster, "watched").await;
    installed(&cluster, "operator").await;
    assert_eq!(
        found["spec"]["template"]["spec"]["nodeSelector"],
        Value::Null
    );
    assert_eq!(roles(&cluster).await, ["watched"]);
    let bindings = get(&cluster, "rolebindings -n watched").await.unwrap();
    let subject = &bindings["items"][0]["subjects"][0];
    assert_eq!(subject["namespace"], "operators");
    let deployment = get(&cluster, what).await.unwrap();
    let warnings = &deployment["status"]["warnings"];
    assert!(warnings.is_null() || warnings == &json!([]), "{warnings}");

    // A wrong configuration changes nothing.
    let wrong = json!({"watchNamespace": "watched", "deploymentConfig": {"env": [{"value": "a"}], "replicas": 2}});
    configure(&cluster, &wrong).await;
    let message = until_reason(&cluster, what, "Installed", "InvalidConfiguration").await;
    for expected in [
        "spec.config.deploymentConfig.env[0]: \"name\" is a required property",
        "spec.config.deploymentConfig: Additional properties are not allowed ('replicas' was unexpected)",
    ] {
        assert!(message.contains(expected), "{message}");
    }
    until_watching(&cluster, "watched").await;
    kubectl(&cluster, "delete bundledeployment operator").await;
}

/// Webhooks of the operator, with a definition in two versions.
const WEBHOOKS: &str = r"  customresourcedefinitions: {owned: [{name: caches.cache.example.com, version: v1, kind: Cache}]}
  webhookdefinitions:
  - type: ValidatingAdmissionWebhook
    generateName: vcache.example.com
    deploymentName: cache-operator
    containerPort: 443
    targetPort: 9443
    failurePolicy: Ignore
    sideEffects: None
    admissionReviewVersions: [v1]
    rules: [{apiGroups: [cache.example.com], apiVersions: [v1], operations: [CREATE], resources: [caches]}]
  - {type: ConversionWebhook, generateName: ccache.example.com, deploymentName: cache-operator, containerPort: 443, targetPort: 9443, sideEffects: None, admissionReviewVersions: [v1], webhookPath: /convert, conversionCRDs: [caches.cache.example.com]}
  install:
";

fn decoded(value: &Value) -> Vec<u8> {
    STANDARD.decode(value.as_str().unwrap()).unwrap()
}

/// Starts a server with the certificate in `secret`.
async fn serve(secret: &Value) -> FileServer {
    let certificate = decoded(&secret["data"]["tls.crt"]);
    let certificate = CertificateDer::from_pem_slice(&certificate).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&decoded(&secret["data"]["tls.key"])).unwrap();
    http::tls_server(vec![certificate], key).await
}

/// Connects to `server` with kubectl, which verifies certificates as the API server does and parses
/// keys as webhooks in Go do. Returns the error of kubectl.
async fn connect(
    cluster: &Cluster,
    server: &FileServer,
    secret: &Value,
    authorities: &Value,
) -> String {
    let user = json!({
        "client-certificate-data": secret["data"]["tls.crt"],
        "client-key-data": secret["data"]["tls.key"],
    });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "users": [{"name": "a", "user": user}],
        "clusters": [{"name": "a", "cluster": {
            "server": format!("https://{}", server.host()),
            "tls-server-name": "cache-operator-service.operators.svc",
            "certificate-authority-data": authorities,
        }}],
    });
    let file = cluster.folder().join("operator-webhook.json");
    fs_err::write(&file, config.to_string()).unwrap();
    let kubectl = cluster.tool(Tool::Kubectl).await.unwrap();
    let output = kubectl.kubeconfig(&file).args(["get", "--raw", "/file"]);
    output.output().await.unwrap().stderr
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_of_an_operator_get_certificates_that_programs_in_go_accept() {
    let (cluster, _webhook) = stage().await;
    let csv = CSV.replace("  install:\n", WEBHOOKS);
    let reference = publish_operator(&cluster, &csv).await;
    deploy(&cluster, &reference, "-n operators --create-namespace").await;

    let secret_name = "secret cache-operator-service-cert -n operators";
    let secret = get(&cluster, secret_name).await.unwrap();
    let service = get(&cluster, "service cache-operator-service -n operators").await;
    assert_eq!(service.unwrap()["spec"]["ports"][0]["targetPort"], 9443);
    let crd = get(&cluster, "crd caches.cache.example.com").await.unwrap();
    let conversion = &crd["spec"]["conversion"]["webhook"]["clientConfig"];
    let admission = get(
        &cluster,
        "validatingwebhookconfiguration vcache.example.com",
    )
    .await;
    let authorities = admission.unwrap()["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(conversion["caBundle"], authorities);
    assert_eq!(conversion["service"]["path"], "/convert");

    let server = serve(&secret).await;
    let error = connect(&cluster, &server, &secret, &authorities).await;
    assert!(
        error.contains("the server could not find the requested resource"),
        "{error}"
    );
    // A connection that trusts another authority fails.
    let own = get(&cluster, "configmap kube-root-ca.crt -n operators")
        .await
        .unwrap();
    let own = json!(STANDARD.encode(own["data"]["ca.crt"].as_str().unwrap()));
    let error = connect(&cluster, &server, &secret, &own).await;
    assert!(
        error.contains("certificate signed by unknown authority"),
        "{error}"
    );

    // A deleted Secret is restored with the same certificate. Changed Secrets are corrected.
    kubectl(&cluster, &format!("delete {secret_name}")).await;
    let is_restored = || async {
        let found = get(&cluster, secret_name).await.unwrap_or_default();
        Ok(found["data"] == secret["data"])
    };
    wait::until_true(LONG, "the Secret is restored", is_restored)
        .await
        .unwrap();
    let patch = json!({"data": {"tls.crt": "", "tls.key": ""}});
    kubectl(
        &cluster,
        &format!("patch {secret_name} --type merge -p {patch}"),
    )
    .await;
    wait::until_true(LONG, "the Secret is corrected", is_restored)
        .await
        .unwrap();

    // The command shows neither certificates nor keys.
    let rendered = cluster
        .kubectl_bundle(["render", &reference, "-n", "operators"])
        .await;
    let rendered = rendered.unwrap().success().unwrap();
    assert!(
        rendered.contains("tls.key: \"\"") && !rendered.contains("caBundle"),
        "{rendered}"
    );
    kubectl(&cluster, "delete bundledeployment operator").await;
    let left = try_kubectl(&cluster, &format!("get {secret_name}")).await;
    assert!(left.stderr.contains("not found"), "{}", left.stderr);
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_is_installed_into_the_target_namespace_and_into_the_suggested_one_without() {
    let (cluster, _webhook) = stage().await;
    let suggested = CSV.replace(
        "alm-examples: \"[]\"",
        "operatorframework.io/suggested-namespace: caches",
    );
    let reference = publish(&cluster, "team/operator:0.3.0", |folder| {
        formats::write(
            folder,
            &[
                ("metadata/annotations.yaml", ANNOTATIONS),
                ("manifests/csv.yaml", &suggested),
                ("manifests/crd.yaml", CRD),
                ("manifests/service.yaml", SERVICE),
            ],
        );
        Ok(())
    })
    .await;

    // As in RukPak, the content contains the suggested namespace.
    deploy(&cluster, &reference, "").await;
    assert!(is_in(&cluster, "caches").await);
    assert_eq!(bound_in(&cluster).await, ["caches"]);

    // The operator moves to an existing namespace. The namespace of the content is deleted.
    kubectl(&cluster, "create namespace operator-own").await;
    deploy(&cluster, &reference, "-n operator-own").await;
    assert!(is_in(&cluster, "operator-own").await);
    assert_eq!(bound_in(&cluster).await, ["operator-own"]);
    is_gone(&cluster, "caches").await;

    // The operator moves to a namespace that the installation creates.
    let more = "-n operator-made --create-namespace";
    deploy(&cluster, &reference, more).await;
    assert!(is_in(&cluster, "operator-made").await);
    assert_eq!(bound_in(&cluster).await, ["operator-made"]);
    assert!(!is_in(&cluster, "operator-own").await);
    let own = get(&cluster, "namespace operator-own").await;
    assert!(own.is_some(), "it is not of the bundle");

    // After the move, the operator still watches all namespaces.
    let line = "deployment cache-operator -n operator-made";
    let found = get(&cluster, line).await.unwrap();
    let annotations = &found["spec"]["template"]["metadata"]["annotations"];
    assert_eq!(annotations["olm.targetNamespaces"], "", "{annotations}");

    // `render` shows the installed objects.
    let words = ["render", &reference, "-n", "operator-made"];
    let rendered = cluster.kubectl_bundle(words).await.unwrap();
    let rendered = rendered.success().unwrap();
    assert!(
        rendered.contains("\n  namespace: operator-made\n")
            && !rendered.contains("\n  namespace: caches\n"),
        "{rendered}"
    );

    kubectl(&cluster, "delete bundledeployment operator").await;
    is_gone(&cluster, "operator-made").await;
}
