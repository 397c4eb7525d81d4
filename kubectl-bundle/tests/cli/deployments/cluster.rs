//! Tests of invalid kubeconfigs, and of responses of an API server. The API server of these tests
//! returns responses from a list. The e2e tests use a real API server.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use crate::context::Context;
use crate::kb_snapshot;

/// Responses by method and suffix of the path. The first response that matches is used.
type Answers = Arc<Mutex<Vec<(Method, &'static str, StatusCode, Value)>>>;
/// Applied objects, in order.
pub(crate) type Applied = Arc<Mutex<Vec<Value>>>;

async fn answer(
    State((answers, applied)): State<(Answers, Applied)>,
    request: Request,
) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    if method == Method::PATCH {
        let body = axum::body::to_bytes(request.into_body(), 1 << 20)
            .await
            .unwrap();
        applied
            .lock()
            .unwrap()
            .push(serde_json::from_slice(&body).unwrap());
    }
    let mut answers = answers.lock().unwrap();
    let found = answers
        .iter()
        .position(|(wanted, end, _, _)| *wanted == method && path.ends_with(end));
    let Some(index) = found else {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    };
    let (_, _, status, body) = answers.remove(index);
    let mut response = (status, body.to_string()).into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if method == Method::PATCH {
        headers.append(
            header::WARNING,
            HeaderValue::from_bytes(
                r#"299 - "BUNDLE-TRUST-005: no SignaturePolicy matches \"web\" …""#.as_bytes(),
            )
            .unwrap(),
        );
    }
    response
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message})
}

/// Starts an API server with these responses, and sets its kubeconfig. Returns the objects that are
/// applied to the API server.
pub(crate) fn cluster(
    context: &mut Context,
    answers: Vec<(Method, &'static str, u16, Value)>,
) -> Applied {
    let answers: Answers = Arc::new(Mutex::new(
        answers
            .into_iter()
            .map(|(method, end, code, body)| {
                (method, end, StatusCode::from_u16(code).unwrap(), body)
            })
            .collect(),
    ));
    let listener = context
        .runtime()
        .block_on(tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
        .unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let applied = Applied::default();
    let state = (answers, Arc::clone(&applied));
    let router = Router::new().fallback(answer).with_state(state);
    context.runtime().spawn(async move {
        axum::serve(listener, router).await.unwrap();
    });
    kubeconfig(context, &format!("http://{address}"));
    context.replace(address, "[SERVER]");
    applied
}

fn kubeconfig(context: &Context, server: &str) {
    context.write(
        "home/.kube/config",
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: dev, context: {{cluster: c, user: u}}}}]\n"
        ),
    );
}

pub(crate) const PINNED: &str = "registry.example.com/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

#[test]
fn error_names_the_fault_of_a_kubeconfig() {
    let context = Context::new();
    kb_snapshot!(context, ["get"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: no kubeconfig found: [DIR]/home/.kube/config does not exist [BUNDLE-CLUSTER-002]
      hint: set --kubeconfig or KUBECONFIG
    ");
    kb_snapshot!(context, ["get", "--kubeconfig", "nowhere.yaml"], @r#"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: nowhere.yaml: cannot read the kubeconfig [BUNDLE-CLUSTER-002]
      caused by: failed to read kubeconfig from '"nowhere.yaml"': No such file or directory (os error 2)
      hint: check the path, or use another file with --kubeconfig
    "#);
    kubeconfig(&context, "https://127.0.0.1:9");
    kb_snapshot!(context, ["get", "--context", "prod"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: [DIR]/home/.kube/config: context `prod` does not exist [BUNDLE-CLUSTER-002]
      hint: available: dev
    ");
    kb_snapshot!(context, ["get"], @r"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    error: the API server https://127.0.0.1:9 (context `dev` of [DIR]/home/.kube/config) is unreachable [BUNDLE-CLUSTER-001]
      caused by: client error (Connect)
      caused by: tcp connect error
      caused by: Connection refused (os error 111)
      hint: check that the cluster is running and that the kubeconfig refers to it; --context selects another context
    ");
    context.write("broken.yaml", "clusters: {");
    kb_snapshot!(context, ["get", "--kubeconfig", "broken.yaml"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: broken.yaml: cannot read the kubeconfig [BUNDLE-CLUSTER-002]
      caused by: failed to parse kubeconfig YAML: error: line 1 column 11: expected sequence start
         --> <input>:1:11
          |
        1 | clusters: {
          |           ^ expected sequence start
      hint: check the path, or use another file with --kubeconfig
    ");
    context.write("empty.yaml", "apiVersion: v1\nkind: Config\n");
    kb_snapshot!(context, ["get", "--kubeconfig", "empty.yaml"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: empty.yaml: no context is selected [BUNDLE-CLUSTER-002]
      hint: the file has no contexts
    ");
}

#[test]
fn messages_equal_those_of_kubectl() {
    let mut context = Context::new();
    let mut deployment: Value = serde_json::from_str(&context.stdout(&[
        "deploy",
        "web",
        PINNED,
        "--dry-run=client",
        "-o",
        "json",
    ]))
    .unwrap();
    deployment["metadata"]["resourceVersion"] = json!("1");
    let path = "/bundledeployments/web";
    cluster(
        &mut context,
        vec![
            (Method::GET, path, 404, status(404, "NotFound", "not found")),
            (Method::PATCH, path, 201, deployment.clone()),
            (Method::GET, path, 200, deployment.clone()),
            (Method::PATCH, path, 200, deployment.clone()),
            (Method::GET, path, 200, deployment),
            (
                Method::PATCH,
                path,
                403,
                status(
                    403,
                    "Forbidden",
                    "admission webhook \"vbundledeployments.core.rukpak.io\" denied the request: BUNDLE-REVIEW-012: ana has no permission to use provisioner class \"production\"",
                ),
            ),
        ],
    );
    kb_snapshot!(context, ["deploy", "web", PINNED], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web created
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    "#);
    kb_snapshot!(context, ["deploy", "web", PINNED, "-o", "name"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    "#);
    kb_snapshot!(context, ["deploy", "web", PINNED], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    Warning: BUNDLE-TRUST-005: no SignaturePolicy matches "web" …
    Error from server (Forbidden): admission webhook "vbundledeployments.core.rukpak.io" denied the request: BUNDLE-REVIEW-012: ana has no permission to use provisioner class "production"
    "#);
    kb_snapshot!(context, ["deploy", "web", PINNED], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: the API server http://[SERVER] (context `dev` of [DIR]/home/.kube/config) does not serve core.rukpak.io/v1alpha1 [BUNDLE-CLUSTER-005]
      hint: install bundle-webhook with `kubectl bundle install`, or select another cluster with --context
    ");
}

#[test]
fn dry_run_prints_the_object() {
    kb_snapshot!(Context::new(), ["deploy", "web", PINNED, "--class", "production", "--service-account", "team-a/deployer", "--collision", "adopt", "--dry-run", "-o", "yaml"], @r"
    exit code: 0
    ----- stdout -----
    apiVersion: core.rukpak.io/v1alpha1
    kind: BundleDeployment
    metadata:
      name: web
    spec:
      collision: Adopt
      provisionerClassName: production
      serviceAccount:
        name: deployer
        namespace: team-a
      template:
        spec:
          provisionerClassName: production
          source:
            image:
              ref: registry.example.com/web@sha256:9f86d081...
            type: image
    ----- stderr -----
    ");
    kb_snapshot!(Context::new(), ["create", "web", PINNED, "--dry-run=client"], @r"
    exit code: 0
    ----- stdout -----
    bundle.core.rukpak.io/web created (dry run)
    ----- stderr -----
    ");
    kb_snapshot!(Context::new(), ["deploy", "web", PINNED, "--service-account", "deployer"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --service-account: `deployer` is not a valid ServiceAccount [BUNDLE-USAGE-001]
      hint: write NAMESPACE/NAME, such as team-a/deployer, or set the namespace with -n
    ");
}

#[test]
fn prints_the_api_servers_message_about_immutable_fields() {
    let mut context = Context::new();
    let path = "/bundles/web";
    let denied = "admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable";
    cluster(
        &mut context,
        vec![
            (Method::GET, path, 404, status(404, "NotFound", "not found")),
            (
                Method::PATCH,
                path,
                403,
                status(403, "bundle.spec is immutable", denied),
            ),
            (Method::GET, path, 404, status(404, "NotFound", "not found")),
            (
                Method::PATCH,
                path,
                503,
                status(
                    503,
                    "ServiceUnavailable",
                    "admission webhook \"vbundles.core.rukpak.io\" denied the request: BUNDLE-TRUST-007: the registry does not answer",
                ),
            ),
            (Method::GET, path, 404, status(404, "NotFound", "not found")),
            (Method::PATCH, path, 409, field_conflict()),
        ],
    );
    kb_snapshot!(context, ["create", "web", PINNED, "-q"], @r#"
    exit code: 3
    ----- stdout -----
    ----- stderr -----
    Error from server (bundle.spec is immutable): admission webhook "vbundles.core.rukpak.io" denied the request: bundle.spec is immutable
    "#);
    kb_snapshot!(context, ["create", "web", PINNED, "-q"], @r#"
    exit code: 4
    ----- stdout -----
    ----- stderr -----
    Error from server (ServiceUnavailable): admission webhook "vbundles.core.rukpak.io" denied the request: BUNDLE-TRUST-007: the registry does not answer
    "#);
    kb_snapshot!(context, ["create", "web", PINNED, "-q"], @r#"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    Error from server (Conflict): Apply failed with 1 conflict: conflict with "kubectl": .spec.source
      hint: another field manager owns these fields; --force-conflicts takes them over
    "#);
}

/// Returns the status of an apply to a field that kubectl owns.
fn field_conflict() -> Value {
    let mut conflict = status(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"kubectl\": .spec.source",
    );
    conflict["details"] = json!({"causes": [{
        "reason": "FieldManagerConflict",
        "message": "conflict with \"kubectl\"",
        "field": ".spec.source",
    }]});
    conflict
}

#[test]
fn lists_and_describes_deployments() {
    let mut context = Context::new();
    let one = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": "web", "generation": 2},
        "spec": {"provisionerClassName": "production", "template": {"spec": {"provisionerClassName": "production", "source": {"type": "image", "image": {"ref": PINNED}}}}},
        "status": {
            "observedGeneration": 2,
            "activeBundle": "web-4f2a9c",
            "installed": {"digest": "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "version": "1.4.0", "objects": 214, "requestedBy": "ana@example.com"},
            "drift": [{"object": "ConfigMap/team-a/web"}],
            "conditions": [
                {"type": "Installed", "status": "True", "reason": "InstallationSucceeded", "message": "Instantiated bundle web-4f2a9c successfully", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "False", "reason": "Drifted", "message": "1 object is out of line", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]
        }
    });
    let list = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeploymentList", "metadata": {"resourceVersion": "7"}, "items": [one]});
    let bundle = |name: &str, labels: Value| {
        json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle", "metadata": {"name": name, "labels": labels},
            "spec": {"provisionerClassName": "production", "source": {"type": "image", "image": {"ref": PINNED}}},
            "status": {"phase": "Unpacked", "content": {"digest": "sha256:9f86d081884c7d65", "specDigest": "x", "version": "1.5.0"}},
        })
    };
    let bundles = json!({"apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleList", "metadata": {}, "items": [
        bundle("web-4f2a9c", json!({"core.rukpak.io/owner-kind": "BundleDeployment"})),
        bundle("mine", json!({})),
    ]});
    let corrected = json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": [{
        "metadata": {}, "involvedObject": {"name": "web"}, "related": {"kind": "ConfigMap", "name": "web"}, "reason": "DriftCorrected",
        "message": "restored ConfigMap/team-a/web (field manager \"mallory\" had written it)", "eventTime": "2126-01-01T00:00:00.000000Z",
    }]});
    let core = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
        {"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list"]},
    ]});
    let forbidden = status(403, "Forbidden", "configmaps \"web\" is forbidden");
    let path = "/bundledeployments";
    cluster(
        &mut context,
        vec![
            (Method::GET, path, 200, list.clone()),
            (Method::GET, "/bundles", 200, bundles.clone()),
            (Method::GET, "/events", 200, corrected.clone()),
            (Method::GET, path, 200, list.clone()),
            (Method::GET, "/bundles", 200, bundles),
            (Method::GET, "/configmaps/web", 403, forbidden),
            (Method::GET, "/web", 200, one.clone()),
            (
                Method::GET,
                "/api",
                200,
                json!({"kind": "APIVersions", "versions": ["v1"]}),
            ),
            (Method::GET, "/api/v1", 200, core),
            (Method::GET, "/events", 200, corrected),
            (Method::GET, "/web", 200, one.clone()),
            (Method::DELETE, "/web", 200, one),
            (Method::GET, path, 200, list),
        ],
    );
    kb_snapshot!(context, ["get"], @r"
    exit code: 0
    ----- stdout -----
    NAME   VERSION   DIGEST         INSTALLED   READY             DRIFT   CORRECTED   AGE
    web    1.4.0     9f86d081884c   True        False (Drifted)   1       1           <none>

    BUNDLE   VERSION   DIGEST         PHASE      AGE
    mine     1.5.0     9f86d081884c   Unpacked   <none>
    ----- stderr -----
    ");
    kb_snapshot!(context, ["get", "-o", "name"], @r"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io/web
    bundle.core.rukpak.io/mine
    ----- stderr -----
    ");
    kb_snapshot!(context, ["status", "web"], @r#"
    exit code: 0
    ----- stdout -----
    Name:          web
    Class:         production
    Wanted:        registry.example.com/web@sha256:9f86d081...
    Version:       1.4.0
    Digest:        sha256:9f86d081...
    Objects:       214
    Active bundle: web-4f2a9c
    Requested by:  ana@example.com
    Not ready:     1 object is out of line

    CONDITION   STATUS   REASON                  MESSAGE
    Installed   True     InstallationSucceeded   Instantiated bundle web-4f2a9c successfully
    Ready       False    Drifted                 1 object is out of line

    KIND        NAMESPACE   NAME   VERSION   CORRECTED   BY        HEALTH
    ConfigMap   team-a      web    1.4.0     0s ago      mallory   ?
    1 of 214 installed objects are listed (213 more)
    Drifted: ConfigMap/team-a/web
    Corrected: 0s ago: restored ConfigMap/team-a/web (field manager "mallory" had written it)
    ----- stderr -----
    warning: values shown as `?` could not be read: no permission to get configmaps in namespace team-a [BUNDLE-CLUSTER-008]
      hint: request a role with these permissions; `status` uses your permissions
    "#);
    kb_snapshot!(context, ["delete", "web", "--wait=false"], @r#"
    exit code: 0
    ----- stdout -----
    bundledeployment.core.rukpak.io "web" deleted
    ----- stderr -----
    web: removes 214 objects
    "#);
    kb_snapshot!(context, ["delete", "web"], @r"
    exit code: 1
    ----- stdout -----
    ----- stderr -----
    error: the API server http://[SERVER] (context `dev` of [DIR]/home/.kube/config) does not serve core.rukpak.io/v1alpha1 [BUNDLE-CLUSTER-005]
      hint: install bundle-webhook with `kubectl bundle install`, or select another cluster with --context
    ");
}

#[test]
fn level_6_prints_each_request_to_the_api_server() {
    let mut context = Context::new();
    let version = json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.0", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    });
    cluster(&mut context, vec![(Method::GET, "/version", 200, version)]);
    let printed = context.run(&["version", "-v=6"]);
    let line = "GET http://[SERVER]/version 200 OK in ";
    assert!(
        printed.lines().any(|found| found.starts_with(line)),
        "{printed}"
    );
}
