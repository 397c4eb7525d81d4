//! `doctor` without a cluster, and with an API server that returns responses from a list. The e2e
//! tests run `doctor` with a real API server.

use std::time::{Duration, Instant};

use axum::http::Method;
use serde_json::{Value, json};

use crate::context::{CONFIG_MAP, Context, PACKAGE};
use crate::deployments::cluster::{cluster, status};
use crate::kb_snapshot;

/// Time that is longer than every deadline in these tests, and shorter than the delay of the
/// server.
const MAX_DURATION: Duration = Duration::from_secs(45);

fn context() -> Context {
    let mut context = Context::new();
    let program = std::fs::canonicalize(env!("CARGO_BIN_EXE_kubectl-bundle")).unwrap();
    context.replace(program.display().to_string(), "[PROGRAM]");
    context.replace(env!("CARGO_PKG_VERSION").to_owned(), "[VERSION]");
    context
}

/// Writes a kubeconfig for this server, with the user in YAML.
fn kubeconfig(context: &Context, server: &str, user: &str) {
    context.write(
        "home/.kube/config",
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: dev\nclusters: [{{name: c, cluster: {{server: \"{server}\"}}}}]\nusers: [{{name: u, user: {user}}}]\ncontexts: [{{name: dev, context: {{cluster: c, user: u}}}}]\n"
        ),
    );
}

/// Returns the results of `doctor -o json` by check, with the exit code.
fn checks(context: &Context, arguments: &[&str]) -> (i32, Vec<Value>) {
    let arguments = [&["doctor", "-o", "json"], arguments].concat();
    let output = context.command(&arguments).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap().clone();
    let problems = checks.iter().filter(|one| one["state"] == "problem");
    assert_eq!(report["summary"]["problem"], problems.count());
    (output.status.code().unwrap(), checks)
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    let found = checks.iter().find(|one| one["check"] == name);
    found.unwrap()
}

#[test]
fn doctor_lists_each_problem_without_a_cluster() {
    kb_snapshot!(context(), ["doctor"], @r"
    exit code: 2
    ----- stdout -----
    warning  plugin        [PROGRAM]: this is version [VERSION], but kubectl finds no kubectl-bundle on PATH [BUNDLE-DOCTOR-001]
             hint: copy this program to a folder of PATH
    problem  connection    no kubeconfig found: [DIR]/home/.kube/config does not exist [BUNDLE-CLUSTER-002]
             hint: set --kubeconfig or KUBECONFIG
    unknown  cluster       not checked without a connection
    ----- stderr -----
    0 ok, 1 warning, 1 problem, 1 unknown
    ");
    let context = context();
    kubeconfig(&context, "https://127.0.0.1:9", "{token: t}");
    kb_snapshot!(context, ["doctor"], @r"
    exit code: 4
    ----- stdout -----
    warning  plugin        [PROGRAM]: this is version [VERSION], but kubectl finds no kubectl-bundle on PATH [BUNDLE-DOCTOR-001]
             hint: copy this program to a folder of PATH
    problem  connection    the API server https://127.0.0.1:9 (context `dev` of [DIR]/home/.kube/config) is unreachable: client error (Connect): tcp connect error: Connection refused (os error 111) [BUNDLE-CLUSTER-001]
             hint: check that the cluster is running and that the kubeconfig refers to it; --context selects another context
    unknown  cluster       not checked without a connection
    ----- stderr -----
    0 ok, 1 warning, 1 problem, 1 unknown
    ");
    kb_snapshot!(context, ["doctor", "--timeout", "0"], @r"
    exit code: 2
    ----- stdout -----
    ----- stderr -----
    error: --timeout: each check needs a deadline [BUNDLE-USAGE-001]
      hint: use a duration such as 10s or 1m
    ");
}

#[test]
fn program_that_kubectl_runs_instead_is_a_warning() {
    let other = Context::new();
    let program = other.write("bin/kubectl-bundle", "#!/bin/sh\n");
    let mut command = std::process::Command::new("chmod");
    let changed = command.arg("755").arg(&program).status().unwrap();
    assert!(changed.success());
    let folder = program.parent().unwrap().display().to_string();
    let context = Context::new().with("PATH", &folder);
    let (_, found) = checks(&context, &[]);
    let plugin = check(&found, "plugin");
    assert_eq!(plugin["state"], "warning", "{plugin}");
    assert_eq!(plugin["code"], "BUNDLE-DOCTOR-001");
    let message = plugin["message"].as_str().unwrap();
    assert!(message.contains("kubectl runs"), "{message}");
}

#[test]
fn ends_at_the_deadline_if_the_server_does_not_respond() {
    // The operating system accepts connections, but no process responds.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let context = Context::new();
    let server = format!("http://{}", listener.local_addr().unwrap());
    kubeconfig(&context, &server, "{token: t}");
    let begun = Instant::now();
    let (exit, found) = checks(&context, &["--timeout", "500ms"]);
    assert!(begun.elapsed() < MAX_DURATION, "{:?}", begun.elapsed());
    assert_eq!(exit, 4);
    let connection = check(&found, "connection");
    assert_eq!(connection["message"], "no response within 500ms");
    assert_eq!(check(&found, "cluster")["state"], "unknown");
}

#[cfg(unix)]
#[test]
fn ends_at_the_deadline_if_the_command_for_credentials_does_not_end() {
    let context = Context::new();
    let user = "{exec: {apiVersion: client.authentication.k8s.io/v1, command: sh, args: [-c, exec sleep 60 2>/dev/null], interactiveMode: Never}}";
    kubeconfig(&context, "http://127.0.0.1:9", user);
    let context = context.with("PATH", "/usr/bin:/bin");
    let begun = Instant::now();
    let (exit, found) = checks(&context, &["--timeout", "500ms"]);
    assert!(begun.elapsed() < MAX_DURATION, "{:?}", begun.elapsed());
    assert_eq!(exit, 4);
    let message = check(&found, "connection")["message"].as_str().unwrap();
    assert!(message.contains("did not end within 500ms"), "{message}");
}

#[test]
fn rejected_credentials_and_an_old_server_are_problems() {
    let mut context = Context::new();
    let unauthorized = status(401, "Unauthorized", "Unauthorized");
    cluster(
        &mut context,
        vec![(Method::GET, "/version", 401, unauthorized)],
    );
    let (exit, found) = checks(&context, &[]);
    assert_eq!(exit, 2);
    let connection = check(&found, "connection");
    assert_eq!(connection["code"], "BUNDLE-CLUSTER-002", "{connection}");

    let mut context = Context::new();
    let version = json!({"major": "1", "minor": "31", "gitVersion": "v1.31.4-eks-a1b2c3d"});
    cluster(&mut context, vec![(Method::GET, "/version", 200, version)]);
    let (exit, found) = checks(&context, &[]);
    assert_eq!(exit, 1);
    let kubernetes = check(&found, "kubernetes");
    assert_eq!(kubernetes["code"], "BUNDLE-CLUSTER-011", "{kubernetes}");
    for (name, state) in [
        ("connection", "ok"),
        ("definitions", "problem"),
        ("registrations", "problem"),
        ("pods", "problem"),
        ("admission", "unknown"),
        ("policies", "unknown"),
        ("skew", "unknown"),
    ] {
        let found = check(&found, name);
        assert_eq!(found["state"], state, "{found}");
    }
}

#[test]
fn registry_is_read_only_if_a_reference_is_given() {
    let mut context = Context::new();
    let registry = context.registry();
    let host = registry.host();
    let (_, found) = checks(&context, &[]);
    assert!(!found.iter().any(|one| one["check"] == "registry"));

    context.write("web/bundle.yaml", PACKAGE);
    context.write("web/manifests/web.yaml", CONFIG_MAP);
    let reference = format!("{host}/team/web:1.4.0");
    context.stdout(&["push", "web", &reference]);
    for (given, state, part) in [
        (reference.as_str(), "ok", "readable, sha256:"),
        (&format!("{host}/team/web"), "ok", "readable, 1 tags"),
        (&format!("{host}/team/web:9"), "problem", ""),
    ] {
        let (_, found) = checks(&context, &["--reference", given]);
        let found = check(&found, "registry");
        assert_eq!(found["state"], state, "{found}");
        assert!(found["message"].as_str().unwrap().contains(part), "{found}");
    }
    let refused = context.run(&["doctor", "--reference", "registry.example.com"]);
    assert!(refused.starts_with("exit code: 2"), "{refused}");
}

#[test]
fn version_warns_if_plugin_and_pod_are_too_far_apart() {
    let mut context = context();
    let deployment = |tag: &str| {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "bundle-webhook"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [
                {"name": "w", "image": format!("registry.example.com/w:{tag}")},
            ]}}},
        })
    };
    let info = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""});
    let path = "/deployments/bundle-webhook";
    cluster(
        &mut context,
        vec![
            (Method::GET, "/version", 200, info.clone()),
            (Method::GET, path, 200, deployment("v9.9.9")),
            (Method::GET, "/version", 200, info),
            (Method::GET, path, 200, deployment("stable")),
        ],
    );
    kb_snapshot!(context, ["version"], @r"
    exit code: 0
    ----- stdout -----
    Client Version: v[VERSION]
    Server Version: v1.36.3
    Webhook Version: v9.9.9
    ----- stderr -----
    warning: the plugin has version [VERSION], and bundle-webhook has version 9.9.9: the minor versions differ by more than one [BUNDLE-DOCTOR-011]
      hint: upgrade the plugin
    ");
    let output = context.run(&["version"]);
    assert!(output.ends_with("----- stderr -----\n"), "{output}");
}
