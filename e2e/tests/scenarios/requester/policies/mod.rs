//! Admission policies that depend on the user, and content that contains its own dependencies.

use super::*;

mod co_owner;
mod mutations;
mod no_dry_run;
mod rejected;

/// Returns a ValidatingAdmissionPolicy for `rule`, and its binding. The policy applies in
/// namespaces whose label `scenario` has this value, and to all cluster-scoped objects of the
/// resource.
pub(super) fn policy(name: &str, rule: &Value, scenario: &str, expression: &str) -> [Value; 2] {
    let kind = |kind: &str, spec: &Value| {
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
            "metadata": {"name": name}, "spec": spec,
        })
    };
    [
        kind(
            "ValidatingAdmissionPolicy",
            &json!({
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": expression, "message": format!("{name} says no")}],
            }),
        ),
        kind(
            "ValidatingAdmissionPolicyBinding",
            &json!({
                "policyName": name, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"scenario": scenario}}},
            }),
        ),
    ]
}

pub(super) fn resource_rule(group: &str, resource: &str, operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "resources": [resource], "operations": operations})
}

/// Waits until the API server rejects `line` of `user` with the message of the policy `name`.
pub(super) async fn until_enforced(cluster: &Cluster, name: &str, user: &str, line: &str) {
    wait::until_true(LONG, &format!("policy {name} is enforced"), || async {
        let tried = try_kubectl(cluster, &format!("{line} --dry-run=server --as={user}")).await;
        Ok(tried.stderr.contains(&format!("{name} says no")))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_about_the_user_applies_to_the_requester_and_its_message_is_reported() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "named", &json!([])).await;
    let configs = resource_rule("", "configmaps", &["CREATE", "UPDATE"]);
    let expression = "request.userInfo.username != 'named'";
    put(
        &cluster,
        &policy("named-guard", &configs, "named", expression),
    )
    .await;
    let line = "create configmap probe -n named";
    until_enforced(&cluster, "named-guard", "named", line).await;
    let objects = [note("named", "one"), note("named", "two")];
    deploy(&cluster, "named", "named", &objects, &json!({})).await;
    let why = until_refused(&cluster, "named").await;
    for part in [
        "named-guard says no",
        "ConfigMap/named/one",
        "ConfigMap/named/two",
    ] {
        assert!(why.contains(part), "{part} is not in {why}");
    }
    for name in ["one", "two"] {
        assert_eq!(
            get(&cluster, &format!("configmap {name} -n named")).await,
            None
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_with_authorizer_checks_applies_to_the_requester() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "guarded", &json!([])).await;
    let configs = resource_rule("", "configmaps", &["CREATE", "UPDATE"]);
    let expression =
        "authorizer.group('guard.example.com').resource('passes').check('pass').allowed()";
    put(
        &cluster,
        &policy("guarded-guard", &configs, "guarded", expression),
    )
    .await;
    let line = "create configmap probe -n guarded";
    until_enforced(&cluster, "guarded-guard", "guarded", line).await;
    deploy(
        &cluster,
        "guarded",
        "guarded",
        &[note("guarded", "one")],
        &json!({}),
    )
    .await;
    let why = until_refused(&cluster, "guarded").await;
    assert!(why.contains("guarded-guard says no"), "{why}");
    assert_eq!(get(&cluster, "configmap one -n guarded").await, None);
    let pass =
        json!([{"apiGroups": ["guard.example.com"], "resources": ["passes"], "verbs": ["pass"]}]);
    put(
        &cluster,
        &[
            cluster_role("guarded-pass", &pass),
            binding("guarded-pass", None, "guarded-pass", "guarded"),
        ],
    )
    .await;
    until(&cluster, "guarded", "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn policy_with_secrets_as_parameters_needs_permission_to_read_secrets() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let policies = json!([{
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
        "verbs": ["create", "patch", "update", "delete", "get", "list"],
    }]);
    tenant(&cluster, "curious", &policies).await;
    let configs = resource_rule("", "configmaps", &["CREATE"]);
    let [mut reader, mut bound] = policy("curious-reader", &configs, "curious", "true");
    reader["spec"]["paramKind"] = json!({"apiVersion": "v1", "kind": "Secret"});
    reader["spec"]["validations"] =
        json!([{"expression": "false", "messageExpression": "string(params.data)"}]);
    bound["spec"]["paramRef"] = json!({"name": "bundle-webhook-stamp", "namespace": "bundle-system", "parameterNotFoundAction": "Deny"});
    deploy(&cluster, "curious", "curious", &[reader, bound], &json!({})).await;
    let why = until_refused(&cluster, "curious").await;
    assert!(why.contains("paramKind"), "{why}");
    for kind in [
        "validatingadmissionpolicy",
        "validatingadmissionpolicybinding",
    ] {
        assert_eq!(get(&cluster, &format!("{kind} curious-reader")).await, None);
    }
}

/// Returns a namespace, a CRD, a custom resource in that namespace, and an object of a later phase.
fn whole(name: &str) -> Vec<Value> {
    let plural = format!("{name}widgets");
    let group = "own.example.com";
    vec![
        namespace(&format!("{name}-own")),
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": {"kind": format!("{name}Widget"), "plural": plural, "singular": format!("{name}widget")},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                }}}],
            },
        }),
        json!({
            "apiVersion": format!("{group}/v1"), "kind": format!("{name}Widget"),
            "metadata": {"name": "first", "namespace": format!("{name}-own")}, "spec": {"size": 1},
        }),
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "late", "namespace": format!("{name}-own")},
            "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
        }),
    ]
}

fn all_permissions(name: &str) -> Value {
    let verbs = json!(["create", "patch", "delete", "get"]);
    json!([
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": verbs},
        {"apiGroups": ["apiextensions.k8s.io"], "resources": ["customresourcedefinitions"], "verbs": verbs},
        {"apiGroups": ["own.example.com"], "resources": [format!("{name}widgets")], "verbs": verbs},
        {"apiGroups": ["networking.k8s.io"], "resources": ["ingresses"], "verbs": verbs},
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn content_with_its_own_namespace_and_kind_is_installed_for_a_user_who_can_write_all_of_it() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "complete", &all_permissions("complete")).await;
    deploy(
        &cluster,
        "complete",
        "complete",
        &whole("complete"),
        &json!({}),
    )
    .await;
    until(&cluster, "complete", "Installed", "True").await;
    let late = get(&cluster, "ingress late -n complete-own").await;
    assert!(late.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn object_of_its_own_kind_that_a_policy_rejects_stops_later_phases() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "partial", &all_permissions("partial")).await;
    let widgets = resource_rule("own.example.com", "partialwidgets", &["CREATE", "UPDATE"]);
    let expression = "request.userInfo.username != 'partial'";
    let guard = policy("partial-guard", &widgets, "partial-own", expression);
    put(&cluster, &guard).await;
    // Both policies are created at the same time. When the API server enforces the second policy,
    // it also enforces the first policy.
    let configs = resource_rule("", "configmaps", &["CREATE"]);
    put(
        &cluster,
        &policy("partial-later", &configs, "partial", expression),
    )
    .await;
    let line = "create configmap probe -n partial";
    until_enforced(&cluster, "partial-later", "partial", line).await;
    deploy(
        &cluster,
        "partial",
        "partial",
        &whole("partial"),
        &json!({}),
    )
    .await;
    let why = until_refused(&cluster, "partial").await;
    assert!(why.contains("partial-guard says no"), "{why}");
    assert_eq!(
        get(
            &cluster,
            "partialwidget.own.example.com first -n partial-own"
        )
        .await,
        None
    );
    assert_eq!(get(&cluster, "ingress late -n partial-own").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn object_is_not_pruned_if_a_policy_forbids_its_deletion_to_the_requester() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "kept", &json!([])).await;
    let objects = [note("kept", "one"), note("kept", "two")];
    deploy(&cluster, "kept", "kept", &objects, &json!({})).await;
    until(&cluster, "kept", "Installed", "True").await;
    let configs = resource_rule("", "configmaps", &["DELETE"]);
    let expression = "request.userInfo.username != 'kept'";
    put(
        &cluster,
        &policy("kept-guard", &configs, "kept", expression),
    )
    .await;
    until_enforced(
        &cluster,
        "kept-guard",
        "kept",
        "delete configmap two -n kept",
    )
    .await;
    let fewer = publish(&cluster, "kept-fewer", &objects[..1]).await;
    let upgraded = apply_as(
        &cluster,
        &deployment("kept", &fewer, &json!({})),
        Some("kept"),
    )
    .await;
    upgraded.success().unwrap();
    wait::until_true(LONG, "it is reported that two stays", || async {
        let found = get(&cluster, "bundledeployment kept")
            .await
            .unwrap_or_default();
        Ok(found["status"]["warnings"]
            .to_string()
            .contains("kept-guard says no"))
    })
    .await
    .unwrap();
    assert!(get(&cluster, "configmap two -n kept").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn class_without_dry_runs_uses_only_access_reviews() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "reviewed", &json!([])).await;
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": "reviewed"},
        "spec": {
            "provisioner": "core.rukpak.io/plain", "requesterCheck": "AccessReview",
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
        },
    });
    let user = json!([{"apiGroups": ["core.rukpak.io"], "resources": ["provisionerclasses"], "resourceNames": ["reviewed"], "verbs": ["use"]}]);
    let configs = resource_rule("", "configmaps", &["CREATE", "UPDATE"]);
    let expression = "request.userInfo.username != 'reviewed'";
    let guard = policy("reviewed-guard", &configs, "reviewed", expression);
    put(&cluster, &guard).await;
    put(
        &cluster,
        &[
            class,
            cluster_role("reviewed-use", &user),
            binding("reviewed-use", None, "reviewed-use", "reviewed"),
        ],
    )
    .await;
    let line = "create configmap probe -n reviewed";
    until_enforced(&cluster, "reviewed-guard", "reviewed", line).await;
    let more = json!({"provisionerClassName": "reviewed"});
    deploy(
        &cluster,
        "reviewed",
        "reviewed",
        &[note("reviewed", "one")],
        &more,
    )
    .await;
    until(&cluster, "reviewed", "Installed", "True").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_account_requester_is_checked_with_the_extra_fields_of_its_token() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let user = "system:serviceaccount:robot:deployer";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": "robot"}});
    let mut objects = vec![namespace("robot"), account];
    for (role, place) in [
        ("bundle-editor", None),
        ("bundle-user", None),
        ("admin", Some("robot")),
    ] {
        objects.push(binding(&format!("robot-{role}"), place, role, user));
    }
    put(&cluster, &objects).await;
    let configs = resource_rule("", "configmaps", &["CREATE", "UPDATE"]);
    let field = "authentication.kubernetes.io/credential-id";
    let expression = format!(
        "request.userInfo.username == 'system:serviceaccount:bundle-system:installer' || (request.userInfo.username == '{user}' && '{field}' in request.userInfo.extra)"
    );
    put(
        &cluster,
        &policy("robot-guard", &configs, "robot", &expression),
    )
    .await;
    // Another user is rejected, which shows that the policy is enforced.
    put(
        &cluster,
        &[binding("probe", Some("robot"), "admin", "probe")],
    )
    .await;
    let line = "create configmap probe -n robot";
    until_enforced(&cluster, "robot-guard", "probe", line).await;
    let reference = publish(&cluster, "robot", &[note("robot", "one")]).await;
    apply_as_deployer(
        &cluster,
        "robot",
        &deployment("robot", &reference, &json!({})),
    )
    .await;
    // The pod can impersonate users. Of all ServiceAccounts, the pod can impersonate only the
    // installing ServiceAccount.
    wait::until_true(LONG, "the Role that the pod needs", || async {
        let found = until(&cluster, "robot", "Authorized", "Unknown").await;
        let why = found["message"].as_str().unwrap_or_default();
        Ok(why.contains("--resource-name=deployer` and `kubectl create rolebinding"))
    })
    .await
    .unwrap();
    put(&cluster, &impersonator("robot", "deployer")).await;
    until(&cluster, "robot", "Installed", "True").await;
}
