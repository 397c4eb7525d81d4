//! The example manifests of RukPak's documentation, with the preset `rukpak`. References of images
//! are unchanged: a mirror serves them. Repositories and URLs are on loopback.

use bundle_testkit::file_server::FileResponse;
use e2e::Cluster;
use e2e::certs::Authority;
use serde_json::{Value, json};

use super::{NAMESPACE, PLAIN, REGISTRY, bundle, deployment, object, preset, push};
use crate::scenarios::content::formats::{ANNOTATIONS, CRD, CSV, SERVICE};
use crate::scenarios::objects::{apply, get, kubectl, until};
use crate::scenarios::reconcile::sources::git::Repository;
use crate::scenarios::reconcile::sources::http::{archive, https_server};

/// Returns the file with the mirror of `quay.io`.
fn mirror(cluster: &Cluster) -> String {
    let file = cluster.folder().join("data").join("registries.conf");
    let host = cluster.registry(0).unwrap().host();
    let conf =
        format!("[[registry]]\nprefix = \"quay.io\"\nlocation = \"{host}\"\ninsecure = true\n");
    fs_err::write(&file, conf).unwrap();
    file.display().to_string()
}

async fn until_installed(cluster: &Cluster, name: &str) -> Value {
    let what = format!("bundledeployment {name}");
    let message = until(cluster, &what, "Installed", "True").await;
    let found = get(cluster, &what).await.unwrap();
    let active = found["status"]["activeBundle"].as_str().unwrap();
    assert_eq!(
        message,
        format!("Instantiated bundle {active} successfully")
    );
    let active = get(cluster, &format!("bundle {active}")).await.unwrap();
    let status = &active["status"];
    assert_eq!(status["phase"], "Unpacked");
    let name = active["metadata"]["name"].as_str().unwrap();
    assert_eq!(
        status["contentURL"],
        format!("https://core.{NAMESPACE}.svc/bundles/{name}.tgz")
    );
    active
}

#[tokio::test(flavor = "multi_thread")]
async fn examples_of_each_source_and_format_reach_installed() {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let folder = cluster.folder().join("data").join("files");
    fs_err::create_dir_all(&folder).unwrap();
    let authority = Authority::new(&folder, "files-ca").unwrap();
    let server = https_server(&authority, &folder).await;
    let mut options = preset();
    let ca = authority.certificate().display().to_string();
    options.flags.extend(["--registry-ca".to_owned(), ca]);
    let mirror = mirror(&cluster);
    options
        .flags
        .extend(["--registries-conf".to_owned(), mirror]);
    let _webhook = cluster.start_webhook(options).await.unwrap();

    // docs/provisioners/plain.md: an image with only manifests, then its upgrade.
    let combo = |version: &str| {
        let reference = format!("quay.io/operator-framework/combo-bundle:{version}");
        let source = json!({"image": {"ref": reference}, "type": "image"});
        deployment("combo", PLAIN, &source)
    };
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: combo}\n";
    for version in ["v0.0.1", "v0.0.2"] {
        let operator = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: operator, namespace: combo}}\ndata: {{version: {version}}}\n"
        );
        let files = [
            ("manifests/namespace.yaml", namespace),
            ("manifests/operator.yaml", &operator),
        ];
        let reference = format!("operator-framework/combo-bundle:{version}");
        push(&cluster, &reference, &files).await;
        apply(&cluster, &combo(version)).await;
        let active = until_installed(&cluster, "combo").await;
        let resolved = &active["status"]["resolvedSource"]["image"]["ref"];
        let resolved = resolved.as_str().unwrap();
        assert!(
            resolved.starts_with("quay.io/operator-framework/combo-bundle"),
            "{resolved}"
        );
        assert!(resolved.contains("@sha256:"), "{resolved}");
        let found = get(&cluster, "configmap operator -n combo").await.unwrap();
        assert_eq!(found["data"]["version"], version);
    }
    let listed = kubectl(&cluster, "get bundledeployment combo").await;
    assert!(listed.contains("InstallationSucceeded"), "{listed}");

    // docs/provisioners/registry.md: the BundleDeployment has the plain class, and its template has
    // the registry class.
    let tag = "operatorhubio/prometheus:v0.47.0--20220325T220130";
    let csv = CSV.replace(
        "alm-examples: \"[]\"",
        "operatorframework.io/suggested-namespace: prometheus-system",
    );
    let files = [
        ("metadata/annotations.yaml", ANNOTATIONS),
        ("manifests/csv.yaml", &csv),
        ("manifests/crd.yaml", CRD),
        ("manifests/service.yaml", SERVICE),
    ];
    push(&cluster, tag, &files).await;
    let source = json!({"type": "image", "image": {"ref": format!("quay.io/{tag}")}});
    apply(&cluster, &deployment("prometheus", REGISTRY, &source)).await;
    until_installed(&cluster, "prometheus").await;
    let operator = "deployment cache-operator -n prometheus-system";
    assert!(get(&cluster, operator).await.is_some());

    // docs/sources/git.md: commit, tag, branch, and another directory.
    let repository = Repository::start(&cluster, "combo").await;
    repository.write("manifests/all.yaml", &object("git", "hello"));
    repository.write("dev/deploy/manifests/all.yaml", &object("git-dev", "hello"));
    let commit = repository.push(false).await;
    apply(&cluster, &repository.secret("gitsecret", NAMESPACE)).await;
    let git = |reference: &Value, directory: Option<&str>| {
        let mut git = json!({
            "ref": reference, "repository": repository.url(),
            "auth": {"secret": {"name": "gitsecret"}, "insecureSkipVerify": false},
        });
        if let Some(directory) = directory {
            git["directory"] = json!(directory);
        }
        json!({"type": "git", "git": git})
    };
    for (name, reference, directory) in [
        ("combo-commit-ref", json!({"commit": commit}), None),
        ("combo-tag-ref", json!({"tag": "v1"}), None),
        ("combo-branch-ref", json!({"branch": "main"}), None),
        (
            "combo-branch-ref-deploy",
            json!({"branch": "main"}),
            Some("./dev/deploy"),
        ),
    ] {
        apply(&cluster, &bundle(name, &git(&reference, directory))).await;
        until(&cluster, &format!("bundle {name}"), "Unpacked", "True").await;
        let found = get(&cluster, &format!("bundle {name}")).await.unwrap();
        let resolved = &found["status"]["resolvedSource"]["git"]["ref"];
        assert_eq!(*resolved, json!({"commit": commit}), "{name}");
    }
    let source = git(&json!({"branch": "main"}), None);
    apply(&cluster, &deployment("combo-git", PLAIN, &source)).await;
    until_installed(&cluster, "combo-git").await;

    // docs/sources/http.md, with the plain format.
    let bytes = archive(&[("manifests/all.yaml", &object("http", "hello"))]);
    let login = ("myusername".to_owned(), "mypassword".to_owned());
    let path = "/hello-world-0.1.0.tgz";
    server.respond(path, FileResponse::Protected(bytes, login));
    let line = format!(
        "create secret generic accesssecret --type kubernetes.io/basic-auth --from-literal=username=myusername --from-literal=password=mypassword -n {NAMESPACE}"
    );
    kubectl(&cluster, &line).await;
    let url = format!("https://{}{path}", server.host());
    let auth = json!({"secret": {"name": "accesssecret"}});
    let source = json!({"http": {"url": url, "auth": auth}, "type": "http"});
    apply(&cluster, &deployment("my-ahoy", PLAIN, &source)).await;
    until_installed(&cluster, "my-ahoy").await;

    // The commands of the documentation create a ConfigMap in the system namespace.
    let manifests = folder.join("manifests");
    fs_err::create_dir(&manifests).unwrap();
    fs_err::write(manifests.join("all.yaml"), object("local", "hello")).unwrap();
    let from = manifests.display();
    let line = format!("create configmap my-configmap --from-file={from} -n {NAMESPACE}");
    kubectl(&cluster, &line).await;
    let line =
        format!("patch configmap my-configmap -n {NAMESPACE} --patch={{\"immutable\":true}}");
    kubectl(&cluster, &line).await;
    let parts = json!([{"configMap": {"name": "my-configmap"}, "path": "manifests"}]);
    let source = json!({"type": "configMaps", "configMaps": parts});
    apply(&cluster, &deployment("local", PLAIN, &source)).await;
    until_installed(&cluster, "local").await;
    for name in ["git", "http", "local"] {
        let found = get(&cluster, &format!("configmap {name} -n default")).await;
        assert_eq!(found.unwrap()["data"]["text"], "hello");
    }
}
