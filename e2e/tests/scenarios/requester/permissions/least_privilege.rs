//! Permissions of the pod's own ServiceAccount. The scenario uses every feature once. Each
//! permission is needed at least once, except those in [`UNUSED`], and the API server denies no
//! request. The documentation has the reason for each permission. The module `process` tests denied
//! permissions.

use std::collections::BTreeSet;
use std::path::Path;

use e2e::cluster::manifests;

use crate::scenarios::admission::callers::another_user;
use crate::scenarios::requester::*;

const POD: &str = "system:serviceaccount:bundle-system:bundle-webhook";
const ACCOUNTS: &str = "system:serviceaccount:";

/// Permissions that the scenario does not use, each with the reason for the permission.
const UNUSED: &[(&str, &str)] = &[(
    "update bundledeployments/finalizers.core.rukpak.io",
    "asked by the admission plugin OwnerReferencesPermissionEnforcement, which is off by default",
)];

/// Permission of the pod in the manifests: one verb on one resource.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GrantedPermission {
    /// Namespace; `None` for the whole cluster.
    namespace: Option<String>,
    group: String,
    resource: String,
    verb: String,
    /// Names of objects. An empty list means all objects.
    names: Vec<String>,
}

impl GrantedPermission {
    fn allows(&self, use_: &Use) -> bool {
        let is = |granted: &str, used: &str| granted == "*" || granted == used;
        let namespace = self.namespace.as_ref();
        namespace.is_none_or(|namespace| *namespace == use_.namespace)
            && is(&self.group, &use_.group)
            && is(&self.resource, &use_.resource)
            && is(&self.verb, &use_.verb)
            && (self.names.is_empty() || self.names.contains(&use_.name))
    }
}

impl std::fmt::Display for GrantedPermission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if !self.names.is_empty() {
            write!(f, " {}", self.names.join(","))?;
        }
        match &self.namespace {
            Some(namespace) => write!(f, " in {namespace}"),
            None => Ok(()),
        }
    }
}

/// A permission that a request needed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    namespace: String,
    group: String,
    resource: String,
    verb: String,
    name: String,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}

/// Returns the permissions of the pod in the shipped manifests, one for each verb.
fn granted() -> BTreeSet<GrantedPermission> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../webhook/deploy/manifests");
    let objects = manifests::read_folder(&folder).unwrap();
    let kinds = ["Role", "ClusterRole"].map(Value::from);
    let roles = objects.iter().filter(|object| {
        kinds.contains(&object["kind"]) && object["metadata"]["name"] == "bundle-webhook"
    });
    let mut rights = BTreeSet::new();
    for role in roles {
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        rights.insert(GrantedPermission {
                            namespace: role["metadata"]["namespace"].as_str().map(str::to_owned),
                            group: group.clone(),
                            resource: resource.clone(),
                            verb,
                            names: texts(&rule["resourceNames"]),
                        });
                    }
                }
            }
        }
    }
    rights
}

/// Returns the permissions in the table of the documentation, as `PLACE: VERB RESOURCE`.
fn documented() -> BTreeSet<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/webhook.md");
    let page = fs_err::read_to_string(page).unwrap();
    let mut found = BTreeSet::new();
    for line in page.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [place, resources, verbs, _] = cells.as_slice() else {
            continue;
        };
        if !["cluster", "system namespace", "state namespace"].contains(place) {
            continue;
        }
        for resource in resources.split(", ") {
            for verb in verbs.split(", ") {
                found.insert(format!("{place}: {verb} {}", resource.trim_matches('`')));
            }
        }
    }
    found
}

#[test]
fn each_permission_of_the_manifests_has_its_reason_in_the_documentation() {
    let granted: BTreeSet<String> = granted()
        .iter()
        .map(|right| {
            let place = match right.namespace.as_deref() {
                None => "cluster",
                Some("bundle-system") => "system namespace",
                Some(_) => "state namespace",
            };
            let separator = if right.group.is_empty() { "" } else { "." };
            let resource = format!("{}{separator}{}", right.resource, right.group);
            format!("{place}: {} {resource}", right.verb)
        })
        .collect();
    assert_eq!(granted, documented());
}

/// Returns the permissions that a request of the pod needed. A request with impersonation needs
/// only the verb `impersonate`.
fn uses(event: &Value) -> Vec<Use> {
    let about = &event["objectRef"];
    let identity = &event["impersonatedUser"];
    if identity.is_null() {
        let mut resource = text(&about["resource"]);
        if let Some(sub) = about["subresource"].as_str() {
            resource = format!("{resource}/{sub}");
        }
        return vec![Use {
            namespace: text(&about["namespace"]),
            group: text(&about["apiGroup"]),
            resource,
            verb: text(&event["verb"]),
            name: text(&about["name"]),
        }];
    }
    let impersonate = |group: &str, resource: &str, namespace: &str, name: &str| Use {
        namespace: namespace.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        verb: "impersonate".to_owned(),
        name: name.to_owned(),
    };
    let user = text(&identity["username"]);
    let account = user.strip_prefix(ACCOUNTS);
    let account = account.and_then(|account| account.split_once(':'));
    let mut needed = vec![match account {
        Some((namespace, name)) => impersonate("", "serviceaccounts", namespace, name),
        None => impersonate("", "users", "", &user),
    }];
    for group in texts(&identity["groups"]) {
        // The API server itself adds the groups that begin with `system:`.
        if !group.starts_with("system:") {
            needed.push(impersonate("", "groups", "", &group));
        }
    }
    let authentication = "authentication.k8s.io";
    if identity["uid"].is_string() {
        needed.push(impersonate(authentication, "uids", "", ""));
    }
    for key in identity["extra"].as_object().into_iter().flatten() {
        let resource = format!("userextras/{}", key.0);
        needed.push(impersonate(authentication, &resource, "", ""));
    }
    needed
}

/// Returns the permissions in `rights` that no request of the pod used. If several permissions
/// allow a request, the request uses the permission for named objects.
fn unused(rights: &BTreeSet<GrantedPermission>, events: &[&Value]) -> BTreeSet<GrantedPermission> {
    let mut left = rights.clone();
    let needed: BTreeSet<Use> = events.iter().flat_map(|event| uses(event)).collect();
    for use_ in &needed {
        let fitting = rights.iter().filter(|right| right.allows(use_));
        if let Some(right) = fitting.max_by_key(|right| !right.names.is_empty()) {
            left.remove(right);
        }
    }
    left
}

/// Returns the requests of the pod's ServiceAccount so far.
fn requests(cluster: &Cluster) -> Vec<Value> {
    let mut events = cluster.audit().unwrap();
    events.retain(|event| event["user"]["username"] == POD);
    events
}

/// As a person: installs content of images, upgrades the content, corrects drift, and removes the
/// content.
async fn person(cluster: &Cluster) {
    let user = "least";
    tenant(cluster, user, &json!([])).await;
    let signatures = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy", "metadata": {"name": "least"},
        "spec": {"mode": "warn", "images": [{"glob": format!("{}/*", cluster.registry(0).unwrap().host())}],
            "authorities": [{"key": {"data": crate::scenarios::objects::KEY}}]},
    });
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "least-pull", "namespace": "bundle-system"},
        "stringData": {".dockerconfigjson": "{\"auths\":{}}"},
    });
    let reader = json!([{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["least-pull"], "verbs": ["get"]}]);
    let root = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "SignaturePolicy", "metadata": {"name": "least-root"},
        "spec": {"mode": "warn", "images": [{"glob": "least.example.com/**"}], "authorities": [{"keyless": {
            "identities": [{"issuer": "https://ci.example.com", "subject": "https://ci.example.com/team"}],
            "trustRoot": {"configMapRef": {"name": "least-root"}},
        }}]},
    });
    put(
        cluster,
        &[
            signatures,
            root,
            secret,
            cluster_role("least-pull", &reader),
            binding("least-pull", Some("bundle-system"), "least-pull", user),
        ],
    )
    .await;
    let kubeconfig = cluster.kubeconfig_for(user, &["least-team"]).unwrap();
    let objects = [note(user, "one"), note(user, "two")];
    for (tag, objects) in [
        ("1.0.0", &objects[..]),
        ("2.0.0", &objects[..1]),
        ("3.0.0", &objects[..]),
    ] {
        let reference = publish(cluster, &format!("{user}:{tag}"), objects).await;
        let mut object = deployment(user, &reference, &json!({"rollout": {"history": 1}}));
        object["spec"]["template"]["spec"]["source"]["image"]["pullSecret"] = json!("least-pull");
        let kubectl = cluster.tool(e2e::Tool::Kubectl).await.unwrap();
        let written = kubectl
            .kubeconfig(&kubeconfig)
            .args(["apply", "--server-side", "-f", "-"])
            .stdin(object.to_string());
        written.output().await.unwrap().success().unwrap();
        until(cluster, user, "Installed", "True").await;
        try_kubectl(cluster, "delete configmap one -n least")
            .await
            .success()
            .unwrap();
        wait::until_true(LONG, "one is restored", || async {
            Ok(get(cluster, "configmap one -n least").await.is_some())
        })
        .await
        .unwrap();
    }
}

/// Installs approved content from ConfigMaps of the system namespace.
async fn approved(cluster: &Cluster) {
    let class = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass", "metadata": {"name": "least-gated"},
        "spec": {
            "provisioner": "core.rukpak.io/plain", "approval": {"mode": "Required"},
            "serviceAccount": {"namespace": "bundle-system", "name": "installer"},
        },
    });
    let content = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": true,
        "metadata": {"name": "least-content", "namespace": "bundle-system"},
        "data": {"all.yaml": note("least", "three").to_string()},
    });
    let mut object = classes::under("least-gated", deployment("least-gated", "", &json!({})));
    object["spec"]["template"]["spec"]["source"] = json!({
        "type": "configMaps",
        "configMaps": [{"configMap": {"name": "least-content"}, "path": "manifests"}],
    });
    put(cluster, &[class, content, object]).await;
    let found = until(cluster, "least-gated", "Approved", "False").await;
    let message = found["message"].as_str().unwrap();
    let (_, digest) = message.split_once("approval of ").unwrap();
    let digest: String = digest.chars().take("sha256:".len() + 64).collect();
    let waiting = get(cluster, "bundledeployment least-gated").await.unwrap();
    let approval = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleApproval", "metadata": {"name": "least"},
        "spec": {"bundleDeployment": {"name": "least-gated", "uid": waiting["metadata"]["uid"]}, "digest": digest},
    });
    put(cluster, &[approval]).await;
    until_condition(cluster, "bundleapproval least", "Accepted", "True").await;
    until(cluster, "least-gated", "Installed", "True").await;
}

/// Installs content as a ServiceAccount. The token of the ServiceAccount has a uid and extra
/// fields.
async fn robot(cluster: &Cluster) {
    let user = "system:serviceaccount:least:deployer";
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "deployer", "namespace": "least"}});
    let mut objects = vec![account];
    for (role, namespace) in [
        ("bundle-editor", None),
        ("bundle-user", None),
        ("admin", Some("least")),
    ] {
        objects.push(binding(
            &format!("least-robot-{role}"),
            namespace,
            role,
            user,
        ));
    }
    objects.extend(impersonator("least", "deployer"));
    put(cluster, &objects).await;
    let reference = publish(cluster, "least-robot", &[note("least", "four")]).await;
    apply_as_deployer(
        cluster,
        "least",
        &deployment("least-robot", &reference, &json!({})),
    )
    .await;
    until(cluster, "least-robot", "Installed", "True").await;
}

/// Removes a Bundle with cached content, and restores a Secret of the pod.
async fn repairs(cluster: &Cluster) {
    let reference = publish(cluster, "least-single", &[note("least", "five")]).await;
    let bundle = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": "least-single", "finalizers": ["core.rukpak.io/delete-cached-bundle"]},
        "spec": {"provisionerClassName": CLASS, "source": {"type": "image", "image": {"ref": reference}}},
    });
    put(cluster, &[bundle]).await;
    wait::until_true(LONG, "it is unpacked", || async {
        let found = get(cluster, "bundle least-single").await;
        Ok(found.unwrap_or_default()["status"]["phase"] == "Unpacked")
    })
    .await
    .unwrap();
    let line = "delete bundle least-single --timeout 80s";
    try_kubectl(cluster, line).await.success().unwrap();
    let secret = "secret bundle-webhook-tls -n bundle-system-state";
    let patch = r#"[{"op":"remove","path":"/data"}]"#;
    let line = format!("patch {secret} --type=json --patch={patch}");
    try_kubectl(cluster, &line).await.success().unwrap();
    wait::until_true(LONG, "the data is there again", || async {
        let found = get(cluster, secret).await.unwrap_or_default();
        Ok(found["data"].is_object())
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pod_uses_each_permission_of_the_manifests_and_is_denied_none() {
    let cluster = Cluster::builder()
        .registries(1)
        .audit(true)
        .start()
        .await
        .unwrap();
    let mut webhook = cluster
        .start_webhook(WebhookOptions::default())
        .await
        .unwrap();
    person(&cluster).await;
    approved(&cluster).await;
    robot(&cluster).await;
    repairs(&cluster).await;
    let client = another_user(&cluster).await;
    let url = format!("https://{}/bundles/least.tgz", webhook.content_address());
    let download = client.get(url).bearer_auth("unknown").send().await.unwrap();
    assert_eq!(download.status(), 401);
    webhook.restart().await.unwrap();
    webhook.wait_for_admission().await.unwrap();
    for name in ["least", "least-gated", "least-robot"] {
        let line = format!("delete bundledeployment {name} --timeout 80s");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    webhook.stop().await.unwrap();

    let rights = granted();
    for (right, _) in UNUSED {
        let is_granted = rights.iter().any(|granted| granted.to_string() == *right);
        assert!(is_granted, "{right} is not granted any more");
    }
    // The audit log contains a watch only after the watch has ended.
    wait::until_true(LONG, "each right is used", || async {
        let events = requests(&cluster);
        let events: Vec<&Value> = events.iter().collect();
        let left: Vec<String> = unused(&rights, &events)
            .iter()
            .map(GrantedPermission::to_string)
            .filter(|right| UNUSED.iter().all(|(unused, _)| unused != right))
            .collect();
        anyhow::ensure!(left.is_empty(), "granted and not used: {left:#?}");
        Ok(true)
    })
    .await
    .unwrap();
    for event in requests(&cluster) {
        // If the API server denies a dry run that the pod sends as another user, the pod itself
        // lacks no permission.
        let is_own = event["impersonatedUser"].is_null();
        let decision = &event["annotations"]["authorization.k8s.io/decision"];
        // A denied impersonation has neither an impersonated user nor a decision.
        let is_denied_impersonation = decision.is_null() && event["responseStatus"]["code"] == 403;
        let is_denied = decision == "forbid" || is_denied_impersonation;
        assert!(!is_own || !is_denied, "{event}");
    }
}
