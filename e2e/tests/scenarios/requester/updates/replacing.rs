//! Immutable objects: the objects that an upgrade deletes and creates again, and the required
//! permissions. `bundle_core::plan::replace` has the rule.

use crate::scenarios::requester::policies::{policy, resource_rule, until_enforced};
use crate::scenarios::requester::*;

/// Node ports of the Services in this file. The node ports and cluster IPs in this file are at the
/// start of their ranges. The API server allocates no value from there while other values are free.
const PORT: u16 = 30077;
const OTHER_PORT: u16 = 30078;

/// Returns a Job with the image `tag`. The cluster runs no Pods: the scenario writes the status of
/// the Job.
fn job(namespace: &str, name: &str, tag: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "run", "image": format!("registry.example.com/run:{tag}")}],
        }}},
    })
}

/// Sets the Job's Pod to finished, like a kubelet, and waits until the Job is complete or deleted.
async fn finish(cluster: &Cluster, namespace: &str, job: &str) {
    let patch = json!({"status": {"phase": "Succeeded"}}).to_string();
    wait::until_true(LONG, &format!("Job {job} completes"), || async {
        let Some(found) = get(cluster, &format!("job {job} -n {namespace}")).await else {
            return Ok(true);
        };
        if condition(&found, "Complete")["status"] == "True" {
            return Ok(true);
        }
        let pods = format!("pods -n {namespace} -l job-name={job}");
        let pods = get(cluster, &pods).await.unwrap_or_default();
        for pod in pods["items"].as_array().into_iter().flatten() {
            let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
            let line =
                format!("patch pod {pod} -n {namespace} --subresource=status --type=merge -p");
            let line = line.split(' ').chain([patch.as_str()]);
            cluster.kubectl(line).await?;
        }
        Ok(false)
    })
    .await
    .unwrap();
}

async fn uid(cluster: &Cluster, what: &str) -> String {
    let found = get(cluster, what).await.unwrap_or_default();
    found["metadata"]["uid"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Upgrades `name` as `user` to these objects.
async fn upgrade(cluster: &Cluster, name: &str, version: &str, objects: &[Value], more: &Value) {
    let reference = publish(cluster, &format!("{name}:{version}"), objects).await;
    let written = apply_as(cluster, &deployment(name, &reference, more), Some(name)).await;
    written.success().unwrap();
}

/// Waits until the condition `Installed` is not `True` and its message contains all of `words`, and
/// returns the message.
async fn until_message(cluster: &Cluster, name: &str, words: &[&str]) -> String {
    wait::until(LONG, &format!("{name} says {words:?}"), || async {
        let found = get(cluster, &format!("bundledeployment {name}")).await;
        let found = found.unwrap_or_default();
        let installed = condition(&found, "Installed");
        let reported = installed["message"].as_str().unwrap_or_default().to_owned();
        if installed["status"] != "True" && words.iter().all(|word| reported.contains(word)) {
            return Ok(Some(reported));
        }
        anyhow::bail!("{}", found["status"]["conditions"])
    })
    .await
    .unwrap()
}

fn annotated(mut object: Value, policy: &str) -> Value {
    object["metadata"]["annotations"]["core.rukpak.io/replace"] = policy.into();
    object
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_job_is_replaced_and_running_one_once_it_has_finished() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "rerun", &json!([])).await;
    let one = [job("rerun", "done", "1"), job("rerun", "busy", "1")];
    deploy(&cluster, "rerun", "rerun", &one, &json!({})).await;
    until(&cluster, "rerun", "Installed", "True").await;
    finish(&cluster, "rerun", "done").await;
    let before = uid(&cluster, "job done -n rerun").await;
    let two = [job("rerun", "done", "2"), job("rerun", "busy", "1")];
    upgrade(&cluster, "rerun", "2", &two, &json!({})).await;
    until(&cluster, "rerun", "Installed", "True").await;
    assert_ne!(uid(&cluster, "job done -n rerun").await, before);
    let found = get(&cluster, "job done -n rerun").await.unwrap();
    let image = &found["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(image, "registry.example.com/run:2");

    let before = uid(&cluster, "job busy -n rerun").await;
    let three = [job("rerun", "done", "2"), job("rerun", "busy", "2")];
    upgrade(&cluster, "rerun", "3", &three, &json!({})).await;
    let words = [
        "Job.batch/rerun/busy: immutable fields change: spec.template",
        "is replaced after it has finished",
    ];
    let reported = until_message(&cluster, "rerun", &words).await;
    assert!(reported.len() < 400, "{reported}");
    assert_eq!(uid(&cluster, "job busy -n rerun").await, before);
    finish(&cluster, "rerun", "busy").await;
    until(&cluster, "rerun", "Installed", "True").await;
    assert_ne!(uid(&cluster, "job busy -n rerun").await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn immutable_objects_are_replaced_if_content_or_spec_requests_it() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "renew", &json!([])).await;
    let config = |text: &str| {
        let mut object = note("renew", "fixed");
        object["immutable"] = true.into();
        object["data"]["a"] = text.into();
        object
    };
    let workload = |kind: &str, app: &str| {
        let mut object = json!({
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "web", "namespace": "renew"},
            "spec": {"replicas": 0, "selector": {"matchLabels": {"app": app}}, "template": {
                "metadata": {"labels": {"app": app}},
                "spec": {"containers": [{"name": "web", "image": "registry.example.com/web:1"}]},
            }},
        });
        if kind == "StatefulSet" {
            object["spec"]["serviceName"] = "web".into();
        }
        object
    };
    let bound = |role: &str| {
        let mut object = binding("viewer", Some("renew"), role, "somebody");
        object["metadata"]["name"] = "viewer".into();
        object
    };
    let service = |address: Option<&str>| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "renew"},
            "spec": {"ports": [{"port": 80}]},
        });
        if let Some(address) = address {
            object["spec"]["clusterIP"] = address.into();
        }
        object
    };
    let all = |text: &str, app: &str, role: &str, address: Option<&str>| {
        [
            config(text),
            workload("Deployment", app),
            workload("StatefulSet", app),
            bound(role),
            service(address),
        ]
    };
    let one = all("1", "one", "view", None);
    deploy(&cluster, "renew", "renew", &one, &json!({})).await;
    until(&cluster, "renew", "Installed", "True").await;
    let looks = [
        "configmap fixed -n renew",
        "deployment web -n renew",
        "statefulset web -n renew",
        "rolebinding viewer -n renew",
        "service web -n renew",
    ];
    let mut before = Vec::new();
    for look in looks {
        before.push(uid(&cluster, look).await);
    }

    // Replacement is not enabled: the message has one sentence for each object, without values, and
    // no object is changed.
    let two = all("2", "two", "edit", Some("10.96.0.7"));
    upgrade(&cluster, "renew", "2", &two, &json!({})).await;
    let words = [
        "ConfigMap/renew/fixed: immutable fields change: data",
        "Deployment.apps/renew/web: immutable fields change: spec.selector",
        "StatefulSet.apps/renew/web: immutable fields change: spec",
        "RoleBinding.rbac.authorization.k8s.io/renew/viewer: immutable fields change: roleRef",
        "Service/renew/web: immutable fields change: spec.clusterIPs[0]",
        "core.rukpak.io/replace: Always",
    ];
    let reported = until_message(&cluster, "renew", &words).await;
    assert!(reported.len() < 2000, "{reported}");
    for (look, before) in looks.iter().zip(&before) {
        assert_eq!(uid(&cluster, look).await, *before, "{look}");
    }

    // The annotation enables the replacement.
    let two = two.map(|object| annotated(object, "Always"));
    upgrade(&cluster, "renew", "3", &two, &json!({})).await;
    until(&cluster, "renew", "Installed", "True").await;
    for (look, before) in looks.iter().zip(&before) {
        assert_ne!(uid(&cluster, look).await, *before, "{look}");
    }
    let found = get(&cluster, "configmap fixed -n renew").await.unwrap();
    assert_eq!(found["data"]["a"], "2");

    // The spec enables the replacement, except for an object with its own annotation.
    let always = json!({"rollout": {"replace": "Always"}});
    let never = [annotated(config("3"), "Never")];
    upgrade(&cluster, "renew", "4", &never, &always).await;
    until_message(
        &cluster,
        "renew",
        &["ConfigMap/renew/fixed: immutable fields change: data"],
    )
    .await;
    upgrade(&cluster, "renew", "5", &[config("3")], &always).await;
    until(&cluster, "renew", "Installed", "True").await;
    let found = get(&cluster, "configmap fixed -n renew").await.unwrap();
    assert_eq!(found["data"]["a"], "3");
}

#[tokio::test(flavor = "multi_thread")]
async fn replacement_needs_permissions_to_delete_and_create() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "unspoilt", &json!([])).await;
    let one = [job("unspoilt", "done", "1")];
    deploy(&cluster, "unspoilt", "unspoilt", &one, &json!({})).await;
    until(&cluster, "unspoilt", "Installed", "True").await;
    finish(&cluster, "unspoilt", "done").await;
    let before = uid(&cluster, "job done -n unspoilt").await;
    let jobs = resource_rule("batch", "jobs", &["DELETE"]);
    let expression = "request.userInfo.username != 'unspoilt'";
    let guard = policy("unspoilt-delete", &jobs, "unspoilt", expression);
    put(&cluster, &guard).await;
    let line = "delete job done -n unspoilt";
    until_enforced(&cluster, "unspoilt-delete", "unspoilt", line).await;
    let two = [job("unspoilt", "done", "2")];
    upgrade(&cluster, "unspoilt", "2", &two, &json!({})).await;
    until_message(
        &cluster,
        "unspoilt",
        &["Job.batch/unspoilt/done", "unspoilt-delete says no"],
    )
    .await;
    assert_eq!(uid(&cluster, "job done -n unspoilt").await, before);

    // The reconciler does not delete an object for a replacement if the requester could not create
    // the object again.
    let jobs = resource_rule("batch", "jobs", &["CREATE"]);
    let guard = policy("unspoilt-create", &jobs, "unspoilt", expression);
    put(&cluster, &guard).await;
    let line = "create job probe --image=registry.example.com/run:1 -n unspoilt";
    until_enforced(&cluster, "unspoilt-create", "unspoilt", line).await;
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let line = format!("delete {kind} unspoilt-delete");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    until_message(
        &cluster,
        "unspoilt",
        &["Job.batch/unspoilt/done", "unspoilt-create says no"],
    )
    .await;
    assert_eq!(uid(&cluster, "job done -n unspoilt").await, before);
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let line = format!("delete {kind} unspoilt-create");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    until(&cluster, "unspoilt", "Installed", "True").await;
    assert_ne!(uid(&cluster, "job done -n unspoilt").await, before);
}

/// Writes the usage into the status of the quota `respawn/one`. The quota controller would write
/// the usage later.
async fn use_quota(cluster: &Cluster, used: &str) {
    let status =
        json!({"status": {"hard": {"count/services": "1"}, "used": {"count/services": used}}});
    let status = status.to_string();
    let line = "patch resourcequota one -n respawn --subresource=status --type=merge -p";
    let line = line.split(' ').chain([status.as_str()]);
    cluster.kubectl(line).await.unwrap().success().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn service_is_deleted_for_its_replacement_only_if_it_could_be_created() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "respawn", &json!([])).await;
    let service = |name: &str, address: Option<&str>, port: u16| {
        let mut object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "respawn"},
            "spec": {"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]},
        });
        if let Some(address) = address {
            object["spec"]["clusterIP"] = address.into();
        }
        [annotated(object, "Always")]
    };
    let look = "service web -n respawn";
    deploy(
        &cluster,
        "respawn",
        "respawn",
        &service("web", None, PORT),
        &json!({}),
    )
    .await;
    until(&cluster, "respawn", "Installed", "True").await;
    let before = uid(&cluster, look).await;

    // The requester has permission to delete the Service, but not to create it. The node port and
    // the quota are in use until the Service is deleted.
    let expression = "request.userInfo.username != 'respawn'";
    let services = resource_rule("", "services", &["CREATE"]);
    let guard = policy("respawn-create", &services, "respawn", expression);
    put(&cluster, &guard).await;
    let line = "create service clusterip probe --tcp=80 -n respawn";
    until_enforced(&cluster, "respawn-create", "respawn", line).await;
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "one", "namespace": "respawn"},
        "spec": {"hard": {"count/services": "1"}},
    });
    put(&cluster, &[quota]).await;
    use_quota(&cluster, "1").await;
    upgrade(
        &cluster,
        "respawn",
        "2",
        &service("web", Some("10.96.0.8"), PORT),
        &json!({}),
    )
    .await;
    let words = ["Service/respawn/web", "respawn-create says no"];
    until_message(&cluster, "respawn", &words).await;
    assert_eq!(uid(&cluster, look).await, before);

    // After the requester has the permission to create the Service, the Service is replaced.
    for kind in [
        "validatingadmissionpolicybinding",
        "validatingadmissionpolicy",
    ] {
        let line = format!("delete {kind} respawn-create");
        try_kubectl(&cluster, &line).await.success().unwrap();
    }
    // A write of the spec triggers an immediate retry.
    let settings = json!({"drift": {"mode": "Correct"}});
    let same = service("web", Some("10.96.0.8"), PORT);
    upgrade(&cluster, "respawn", "2", &same, &settings).await;
    wait::until_true(LONG, "the Service is replaced", || async {
        let now = uid(&cluster, look).await;
        if now.is_empty() {
            use_quota(&cluster, "0").await;
        }
        if now.is_empty() || now == before {
            let found = get(&cluster, "bundledeployment respawn").await;
            anyhow::bail!("{}", found.unwrap_or_default()["status"]["conditions"]);
        }
        Ok(true)
    })
    .await
    .unwrap();
    until(&cluster, "respawn", "Installed", "True").await;
    let replaced = uid(&cluster, look).await;
    let found = get(&cluster, look).await.unwrap();
    assert_eq!(found["spec"]["clusterIP"], "10.96.0.8");
    assert_eq!(found["spec"]["ports"][0]["nodePort"], PORT);

    // The new port is in use by another Service.
    let line = "delete resourcequota one -n respawn";
    try_kubectl(&cluster, line).await.success().unwrap();
    put(&cluster, &service("other", None, OTHER_PORT)).await;
    upgrade(
        &cluster,
        "respawn",
        "3",
        &service("web", Some("10.96.0.9"), OTHER_PORT),
        &json!({}),
    )
    .await;
    let words = ["Service/respawn/web", "already allocated"];
    until_message(&cluster, "respawn", &words).await;
    assert_eq!(uid(&cluster, look).await, replaced);
}

#[tokio::test(flavor = "multi_thread")]
async fn message_names_the_permission_for_a_replacement_if_creation_is_limited_by_name() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    tenant(&cluster, "byname", &json!([])).await;
    let line = "delete rolebinding tenant-admin -n byname";
    try_kubectl(&cluster, line).await.success().unwrap();
    let role = |names: Value| {
        let mut role = cluster_role(
            "byname-jobs",
            &json!([{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create", "patch", "delete"]}]),
        );
        if !names.is_null() {
            role["rules"][0]["resourceNames"] = names;
        }
        [
            role,
            binding("byname-jobs", Some("byname"), "byname-jobs", "byname"),
        ]
    };
    put(&cluster, &role(json!(["done"]))).await;
    let one = [job("byname", "done", "1")];
    deploy(&cluster, "byname", "byname", &one, &json!({})).await;
    until(&cluster, "byname", "Installed", "True").await;
    finish(&cluster, "byname", "done").await;
    let before = uid(&cluster, "job done -n byname").await;
    let two = [job("byname", "done", "2")];
    upgrade(&cluster, "byname", "2", &two, &json!({})).await;
    let words = [
        "Job.batch/byname/done",
        "uses another name",
        "without resourceNames",
    ];
    until_message(&cluster, "byname", &words).await;
    assert_eq!(uid(&cluster, "job done -n byname").await, before);
    put(&cluster, &role(Value::Null)).await;
    until(&cluster, "byname", "Installed", "True").await;
    assert_ne!(uid(&cluster, "job done -n byname").await, before);
}
