//! Build-time checks of CRDs, custom resources and built-in kinds, compared with a real API server:
//! `build` and the API server check each case. Unit tests of `bundle_core::check` test the
//! messages.

use bundle_core::check;
use bundle_core::diagnostic::{Findings, Severity};
use bundle_core::format::{self, Files};
use bundle_schemas::BuiltinSchemas;
use e2e::tools::KubernetesRelease;
use e2e::webhook::shared;
use e2e::{Cluster, wait};
use futures::{StreamExt as _, stream};
use kube::Client;
use serde_json::Value;

mod builtin;
mod definitions;
mod objects;

use builtin::{BASES, cases, pointer};
use definitions::definition;
use objects::{OBJECTS, good, rich};

/// Cases for which `build` and the API server have different results, and the reasons.
const DIFFER: &[(&str, &str)] = &[
    (
        "a rule that costs too much",
        "only the server estimates the cost of rules",
    ),
    (
        "a rule that compares a number with text",
        "the evaluator has no static types",
    ),
    (
        "a rule without a yes or no",
        "the evaluator has no static types",
    ),
    (
        "number out of its type",
        "server-side apply cuts it to 32 bits in silence",
    ),
];

/// Cases for which Kubernetes 1.33 and later releases differ, and the reasons. `build` applies the
/// rules of the newest release.
const DIFFERENCES_ON_OLDEST: &[(&str, &str)] = &[
    (
        "more than 32 bits",
        "1.33 does not compare a number with its format",
    ),
    ("rules with the libraries", "1.33 has no isSemver"),
];

/// Case: name, `true` if the API server accepts the changed object, and the change of a valid
/// object.
type Case = (&'static str, bool, fn(&mut Value));

/// Returns the findings of `build` for these objects: first the errors, then the messages about
/// parts that `build` could not check.
fn build_findings(objects: &[&Value]) -> (Vec<String>, Vec<String>) {
    let package = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nname: web\nversion: 1.4.0\nformat: plain+v0\n";
    let mut files = Files::from([("bundle.yaml".to_owned(), package.as_bytes().to_vec())]);
    for (index, object) in objects.iter().enumerate() {
        files.insert(
            format!("manifests/{index}.json"),
            object.to_string().into_bytes(),
        );
    }
    let printed = |findings: &Findings, severity: Severity| -> Vec<String> {
        let found = findings.iter().filter(|finding| {
            finding.severity == severity
                && (severity == Severity::Error || finding.message.starts_with("not checked"))
        });
        found.map(ToString::to_string).collect()
    };
    let findings = match format::read(&files) {
        Ok(content) => check::all(&content, &files, &BuiltinSchemas),
        Err(findings) => findings,
    };
    (
        printed(&findings, Severity::Error),
        printed(&findings, Severity::Warning),
    )
}

/// Creates the object as a server-side dry run; the error is the message of the API server.
async fn create_dry(client: &Client, path: &str, object: &Value) -> Result<(), String> {
    let request = http::Request::post(format!("{path}?dryRun=All&fieldValidation=Strict"))
        .header("content-type", "application/json")
        .body(object.to_string().into_bytes())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Runs each case with `build` and the API server. Panics with a list of the cases whose results
/// are unexpected. `beside` are the other objects of the content.
async fn compare(client: &Client, path: &str, base: &Value, table: &[Case], beside: &[Value]) {
    let is_oldest = KubernetesRelease::from_environment().unwrap() == KubernetesRelease::Oldest;
    let cases = stream::iter(table).map(|(name, fine, change)| async move {
        let otherwise = is_oldest && DIFFERENCES_ON_OLDEST.iter().any(|(case, _)| case == name);
        let mut object = base.clone();
        change(&mut object);
        let path = match object["apiVersion"].as_str() {
            Some("checks.example.com/v2") => path.replace("/v1/", "/v2/"),
            _ => path.to_owned(),
        };
        let objects: Vec<&Value> = beside.iter().chain([&object]).collect();
        let (errors, unchecked) = build_findings(&objects);
        let server = create_dry(client, &path, &object).await;
        let mut wrong = Vec::new();
        if (server.is_ok() == *fine) == otherwise {
            wrong.push(format!("{name}: unexpected verdict of the server: {server:?}"));
        }
        let known = otherwise || DIFFER.iter().any(|(case, _)| case == name);
        if (errors.is_empty() == server.is_ok()) == known {
            wrong.push(format!("{name}: verdict of the server {server:?}, of build {errors:?}, not checked: {unchecked:?}"));
        }
        if !unchecked.is_empty() && !known {
            wrong.push(format!("{name}: not checked: {unchecked:?}"));
        }
        wrong
    });
    let wrong: Vec<String> = cases.buffered(8).collect::<Vec<_>>().await.concat();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        table.len(),
        wrong.join("\n")
    );
}

/// Applies the object as a server-side dry run. The error is the message of the API server.
async fn applied(client: &Client, path: &str, object: &Value) -> Result<(), String> {
    let name = object["metadata"]["name"].as_str().unwrap();
    let query = "dryRun=All&fieldManager=checks&fieldValidation=Strict";
    let request = http::Request::patch(format!("{path}/{name}?{query}"))
        .header("content-type", "application/apply-patch+yaml")
        .body(object.to_string().into_bytes())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(status.message.clone()),
        Err(error) => panic!("{path}: {error}"),
    }
}

/// Sets the field at a JSON pointer to a value in YAML. The value `-` removes the field.
fn change(object: &mut Value, pointer: &str, value: &str) {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = object.pointer_mut(parent).unwrap();
    match parent {
        Value::Array(items) => items.push(yaml(value)),
        Value::Object(map) if value == "-" => drop(map.remove(key).unwrap()),
        Value::Object(map) => drop(map.insert(key.to_owned(), yaml(value))),
        other => panic!("{pointer}: {other}"),
    }
}

fn yaml(text: &str) -> Value {
    let mut documents = bundle_core::yaml::documents(text.as_bytes(), "case").unwrap();
    documents.pop().unwrap().value
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_builtin_kinds_equal_those_of_server_side_apply() {
    let cluster = shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    let base = |kind: &str| {
        let (_, path, text) = BASES.iter().find(|(name, _, _)| *name == kind).unwrap();
        (*path, yaml(text))
    };
    let mut wrong = Vec::new();
    let mut judge = async |name: &str, fine: bool, path: &str, object: &Value| {
        let (errors, _) = build_findings(&[object]);
        let server = applied(&client, path, object).await;
        let known = DIFFER.iter().any(|(case, _)| *case == name);
        if server.is_ok() != (fine || known) {
            wrong.push(format!(
                "{name}: unexpected verdict of the server: {server:?}"
            ));
        }
        if errors.is_empty() != fine {
            wrong.push(format!(
                "{name}: verdict of the server {server:?}, of build {errors:?}"
            ));
        }
    };
    for (name, path, text) in BASES {
        judge(name, true, path, &yaml(text)).await;
    }
    for (name, fine, kind, field, value) in cases() {
        let (path, mut object) = base(kind);
        change(&mut object, &pointer(field), value);
        judge(name, *fine, path, &object).await;
    }
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        BASES.len() + cases().count(),
        wrong.join("\n")
    );
}

const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_definitions_equal_those_of_the_server() {
    let cluster = shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    compare(&client, CRDS, &definition(), &definitions::cases(), &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verdicts_on_custom_resources_equal_those_of_the_server() {
    let cluster = shared().await.unwrap();
    let client = cluster.client().await.unwrap();
    install(&cluster, &client).await;
    let path = "/apis/checks.example.com/v1/namespaces/default/goods";
    compare(&client, path, &good(), OBJECTS, &[rich()]).await;
}

async fn install(cluster: &Cluster, client: &Client) {
    let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
    let made = kubectl
        .args(["create", "-f", "-"])
        .stdin(rich().to_string())
        .output()
        .await
        .unwrap();
    made.success().unwrap();
    let path = "/apis/checks.example.com/v1/namespaces/default/goods";
    wait::until(
        std::time::Duration::from_secs(90),
        "goods are served",
        || async {
            let served = create_dry(client, path, &good()).await;
            Ok(served.is_ok().then_some(()))
        },
    )
    .await
    .unwrap();
}
