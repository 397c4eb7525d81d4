//! The verbs `run` and `content`, over a direct connection. Covers E60 to E65 of
//! `docs/reference/rukpak-scenarios.md`.

use std::path::{Path, PathBuf};

use e2e::host::command::Command;
use e2e::{Cluster, Output, Webhook};

use super::uploads::stage;
use crate::scenarios::objects::{get, kubectl, try_kubectl, until_reason};

/// A cluster with ServiceAccount `ci` of namespace `default`, which can install, upload and
/// download.
struct VerbScene {
    cluster: Cluster,
    webhook: Webhook,
    /// Kubeconfig of `ci`, with a token.
    ci: PathBuf,
}

impl VerbScene {
    async fn start() -> Self {
        let (cluster, webhook, _) = stage().await;
        // The plugin reads the certificate authority from the webhook registration, as `ci`.
        let role = "create clusterrole registration-reader --verb=get --resource=validatingwebhookconfigurations --resource-name=bundle-webhook";
        kubectl(&cluster, role).await;
        for role in ["bundle-reader", "registration-reader"] {
            let binding = format!("create clusterrolebinding ci-{role}-2 --clusterrole={role}");
            kubectl(&cluster, &format!("{binding} --serviceaccount=default:ci")).await;
        }
        let ci = cluster.service_account_kubeconfig("default", "ci").await;
        Self {
            cluster,
            webhook,
            ci: ci.unwrap(),
        }
    }

    /// Writes a folder of manifests with ConfigMap `web`. The folder has no `bundle.yaml`, as in
    /// RukPak.
    fn folder(&self, value: &str) -> String {
        let folder = self.cluster.folder().join("data").join("web");
        fs_err::create_dir_all(folder.join("manifests")).unwrap();
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: web, namespace: default}}\ndata: {{value: {value}}}\n"
        );
        fs_err::write(folder.join("manifests/all.yaml"), object).unwrap();
        folder.display().to_string()
    }

    fn url(&self) -> String {
        format!("https://{}", self.webhook.content_address())
    }

    /// Runs a verb of the plugin with the URL of the content service.
    async fn verb(&self, kubeconfig: &Path, line: &str) -> Output {
        let plugin = self.cluster.plugin().await.unwrap();
        let line = format!("{line} --content-url {}", self.url());
        let plugin = plugin.args(line.split(' ')).kubeconfig(kubeconfig);
        plugin.output().await.unwrap()
    }

    async fn as_ci(&self, line: &str) -> Output {
        self.verb(&self.ci, line).await
    }

    async fn as_administrator(&self, line: &str) -> Output {
        self.verb(self.cluster.kubeconfig(), line).await
    }

    async fn value(&self) -> String {
        let line = "get configmap web -n default -o jsonpath={.data.value}";
        kubectl(&self.cluster, line).await
    }

    /// Returns the names of the Bundles of a BundleDeployment.
    async fn bundles(&self, owner: &str) -> Vec<String> {
        let line = format!(
            "get bundles -l core.rukpak.io/owner-name={owner} -o jsonpath={{.items[*].metadata.name}}"
        );
        let names = kubectl(&self.cluster, &line).await;
        names.split_whitespace().map(str::to_owned).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_installs_a_folder_and_upgrades_only_after_a_change() {
    let scene = VerbScene::start().await;
    let folder = scene.folder("first");
    let line = format!("run web {folder} --wait");
    let checked = scene.as_ci(&format!("{line} --dry-run=server")).await;
    let created = "bundledeployment.core.rukpak.io/web created";
    assert_eq!(
        checked.success().unwrap(),
        format!("{created} (server dry run)")
    );
    assert_eq!(get(&scene.cluster, "bundledeployment web").await, None);

    let first = scene.as_ci(&line).await;
    let told = first.stderr.clone();
    assert_eq!(first.success().unwrap(), created);
    assert_eq!(scene.value().await, "first");
    let bundles = scene.bundles("web").await;
    let [bundle] = &bundles[..] else {
        panic!("{bundles:?}");
    };
    let uploaded = format!("successfully uploaded bundle content for \"{bundle}\"\n");
    assert!(told.contains(&uploaded), "{told}");
    assert!(told.ends_with("web is installed\n"), "{told}");

    let second = scene.as_ci(&line).await;
    let told = second.stderr.clone();
    let unchanged = "bundledeployment.core.rukpak.io/web unchanged";
    assert_eq!(second.success().unwrap(), unchanged);
    let same = format!("bundle \"{bundle}\" is already up-to-date\n");
    assert!(told.contains(&same), "{told}");
    assert_eq!(scene.bundles("web").await, bundles);

    let line = format!("run web {} --wait", scene.folder("third"));
    let third = scene.as_ci(&line).await;
    let configured = "bundledeployment.core.rukpak.io/web configured";
    assert_eq!(third.success().unwrap(), configured);
    assert_eq!(scene.value().await, "third");

    let missing = scene.as_ci("run none nowhere").await.failure(1).unwrap();
    assert!(
        missing.starts_with("error: nowhere: no such file or directory [BUNDLE-USAGE-002]"),
        "{missing}"
    );
    assert_eq!(get(&scene.cluster, "bundledeployment none").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_lists_and_writes_the_files_of_unpacked_bundles_only() {
    let scene = VerbScene::start().await;
    let folder = scene.folder("first");
    let installed = scene.as_ci(&format!("run web {folder} --wait")).await;
    installed.success().unwrap();
    let bundle = scene.bundles("web").await.remove(0);
    let listed = scene.as_ci(&format!("content {bundle}")).await;
    let files = "bundle.yaml\nmanifests/all.yaml";
    assert_eq!(listed.success().unwrap(), files);
    let report = scene.as_ci(&format!("content {bundle} -o json")).await;
    let report: serde_json::Value = serde_json::from_str(&report.success().unwrap()).unwrap();
    assert_eq!(report["files"][1]["path"], "manifests/all.yaml");

    // The archive is binary, so tar reads it from a pipe.
    let line = format!(
        "kubectl bundle content {bundle} -o tar --content-url {} | tar -xzO manifests/all.yaml",
        scene.url()
    );
    let shell = scene.cluster.clean(Command::new("/bin/sh"));
    let shell = shell.args(["-c", &line]).kubeconfig(&scene.ci);
    let written = shell.output().await.unwrap().success().unwrap();
    let source = fs_err::read_to_string(Path::new(&folder).join("manifests/all.yaml")).unwrap();
    assert_eq!(written, source.trim_end());

    let missing = scene.as_ci("content badname").await;
    assert_eq!(missing.stdout, "");
    assert_eq!(
        missing.failure(1).unwrap(),
        "Error from server (NotFound): bundles.core.rukpak.io \"badname\" not found"
    );

    // The class belongs to the provisioner for operator bundles, so the pod rejects the content.
    let line = format!("run bad {folder} --class core-rukpak-io-registry --wait --timeout 60s");
    let failed = scene.as_ci(&line).await;
    assert!(!failed.is_success(), "{failed}");
    let bad = scene.bundles("bad").await.remove(0);
    let what = format!("bundle {bad}");
    let why = until_reason(&scene.cluster, &what, "Unpacked", "UnpackFailed").await;
    let rejected = scene.as_ci(&format!("content {bad} -o tar")).await;
    assert_eq!(rejected.stdout, "");
    let told = rejected.failure(1).unwrap();
    let expected = format!(
        "error: Bundle {bad} has no content: it is Failing (UnpackFailed: {why}) [BUNDLE-CLUSTER-017]"
    );
    assert!(told.starts_with(&expected), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn content_service_accepts_tokens_and_its_own_certificate_only() {
    let scene = VerbScene::start().await;
    let line = format!("run web {}", scene.folder("first"));

    // The administrator has a client certificate and no token.
    let told = scene.as_administrator(&line).await.failure(2).unwrap();
    let expected = "error: the user of the kubeconfig has no bearer token; the content service of bundle-webhook accepts only tokens [BUNDLE-CLUSTER-016]";
    assert!(told.starts_with(expected), "{told}");
    let user = "system:serviceaccount:default:ci";
    let impersonated = scene.as_administrator(&format!("{line} --as {user}")).await;
    let told = impersonated.failure(2).unwrap();
    assert!(
        told.starts_with(&format!(
            "error: bundle-webhook cannot see that you impersonate {user}"
        )),
        "{told}"
    );
    assert_eq!(get(&scene.cluster, "bundledeployment web").await, None);

    let account = "--as-service-account default/ci";
    let line = format!("{line} --wait {account}");
    let installed = scene.as_administrator(&line).await;
    installed.success().unwrap();
    assert_eq!(scene.value().await, "first");
    let bundle = scene.bundles("web").await.remove(0);

    kubectl(&scene.cluster, "create serviceaccount viewer -n default").await;
    let binding = "create clusterrolebinding viewer --clusterrole=view";
    let binding = format!("{binding} --serviceaccount=default:viewer");
    try_kubectl(&scene.cluster, &binding)
        .await
        .success()
        .unwrap();
    let viewer = format!("content {bundle} --as-service-account default/viewer");
    let told = scene.as_administrator(&viewer).await.failure(3).unwrap();
    let expected = format!(
        "error: the content was not downloaded: system:serviceaccount:default:viewer must have permission get on /bundles/{bundle}.tgz: bind ClusterRole bundle-reader (403 Forbidden) [BUNDLE-CLUSTER-015]"
    );
    assert!(told.starts_with(&expected), "{told}");
    // A user without permission to read the registration passes the certificate authority as a
    // flag.
    let kubeconfig = scene
        .cluster
        .service_account_kubeconfig("default", "viewer");
    let kubeconfig = kubeconfig.await.unwrap();
    let unknown = scene.verb(&kubeconfig, &format!("content {bundle}")).await;
    let told = unknown.failure(1).unwrap();
    assert!(
        told.starts_with("error: cannot read the certificate authority of bundle-webhook: validatingwebhookconfigurations.admissionregistration.k8s.io \"bundle-webhook\" is forbidden"),
        "{told}"
    );

    // The plugin sends no token to a server whose certificate another authority issued.
    let line = "get configmap kube-root-ca.crt -n default -o jsonpath={.data.ca\\.crt}";
    let other = scene.cluster.folder().join("data").join("other.crt");
    fs_err::write(&other, kubectl(&scene.cluster, line).await).unwrap();
    let line = format!("content {bundle} --content-ca {}", other.display());
    let told = scene.as_ci(&line).await.failure(4).unwrap();
    assert!(
        told.contains("is unreachable [BUNDLE-CLUSTER-014]"),
        "{told}"
    );
    assert!(told.contains("invalid peer certificate"), "{told}");
}
