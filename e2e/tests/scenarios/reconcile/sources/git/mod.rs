//! Content from git repositories over SSH: installed, pinned to its commit, and rejected if the
//! source or the repository tries to reach other programs, files or hosts. `https` fetches content
//! over https.

mod https;
mod permissions;

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use e2e::ssh_server::SshServer;
use e2e::webhook::{NAMESPACE, Webhook, WebhookOptions, shared};
use e2e::{Cluster, wait};
use serde_json::{Value, json};

use crate::scenarios::objects::apply_as;
use crate::scenarios::reconcile::{CLASS, LONG, apply, condition, get, installed, kubectl, until};

/// Starts a cluster, and a webhook with the memory that git sources need.
async fn stage() -> (Cluster, Webhook) {
    let cluster = Cluster::builder().registries(1).start().await.unwrap();
    let options = WebhookOptions {
        flags: ["--memory-limit", "192Mi"].map(str::to_owned).into(),
        ..WebhookOptions::default()
    };
    let webhook = cluster.start_webhook(options).await.unwrap();
    (cluster, webhook)
}

/// An SSH server with a repository, and the folder in which commits are made.
pub(in crate::scenarios) struct Repository {
    server: SshServer,
    work: PathBuf,
}

impl Repository {
    pub(in crate::scenarios) async fn start(cluster: &Cluster, name: &str) -> Self {
        Self::start_on(cluster, name, Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts the server on this address of the machine.
    pub(in crate::scenarios) async fn start_on(cluster: &Cluster, name: &str, ip: IpAddr) -> Self {
        let server = SshServer::start_on(cluster, name, ip).await.unwrap();
        let work = server.folder().join("work");
        let repository = Self { server, work };
        fs_err::create_dir_all(&repository.work).unwrap();
        repository.git("init --quiet --initial-branch=main").await;
        repository
            .git("init --quiet --bare --initial-branch=main ../web.git")
            .await;
        repository.git("remote add served ../web.git").await;
        repository
    }

    async fn git(&self, line: &str) -> String {
        let command = e2e::host::command::Command::new("git")
            .args(["-c", "protocol.file.allow=always"])
            .args(["-c", "user.name=ana", "-c", "user.email=ana@example.com"])
            .args(line.split(' '))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .current_dir(&self.work);
        let done = command.output().await.unwrap().success().unwrap();
        done.trim().to_owned()
    }

    pub(in crate::scenarios) fn write(&self, path: &str, text: &str) {
        let path = self.work.join(path);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    /// Writes a bundle with one ConfigMap `name` into the folder `name`.
    pub(in crate::scenarios) fn bundle(&self, name: &str, text: &str) {
        let object = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\ndata: {{text: {text}}}\n"
        );
        self.write(&format!("{name}/manifests/all.yaml"), &object);
    }

    /// Commits all files, and pushes branch and tag. With `amend`, replaces the last commit.
    /// Returns the hash of the commit.
    pub(in crate::scenarios) async fn push(&self, amend: bool) -> String {
        self.git("add --all").await;
        let amend = if amend { " --amend" } else { "" };
        self.git(&format!("commit --quiet -m bundles{amend}")).await;
        self.git("tag --force v1").await;
        let refs = "refs/heads/*:refs/heads/* refs/tags/*:refs/tags/*";
        self.git(&format!("push --quiet --force served {refs}"))
            .await;
        self.git("rev-parse HEAD").await
    }

    /// Returns the URL of the served repository.
    pub(in crate::scenarios) fn url(&self) -> String {
        self.server.url("web.git")
    }

    /// Returns a Secret with the private key that the server accepts, and the host key of the
    /// server.
    pub(in crate::scenarios) fn secret(&self, name: &str, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": name, "namespace": namespace},
            "stringData": {
                "ssh-privatekey": self.server.private_key().unwrap(),
                "ssh-knownhosts": self.server.known_hosts().unwrap(),
            },
        })
    }

    /// Creates the Secret for the server in the system namespace, and a class that allows loopback
    /// addresses.
    pub(in crate::scenarios) async fn allow(&self, cluster: &Cluster, name: &str) {
        apply(cluster, &self.secret(name, NAMESPACE)).await;
        let class = json!({
            "apiVersion": "core.rukpak.io/v1alpha1", "kind": "ProvisionerClass",
            "metadata": {"name": name},
            "spec": {
                "provisioner": "core.rukpak.io/plain",
                "serviceAccount": {"namespace": NAMESPACE, "name": "installer"},
                "sources": {"privateAddresses": "Allow"},
            },
        });
        apply(cluster, &class).await;
    }

    pub(in crate::scenarios) fn source(
        &self,
        secret: &str,
        directory: &str,
        reference: &Value,
    ) -> Value {
        json!({"type": "git", "git": {
            "repository": self.url(), "directory": directory, "ref": reference,
            "auth": {"secret": {"name": secret}},
        }})
    }
}

fn bundle(name: &str, class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "Bundle",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "source": source},
    })
}

fn deployment(name: &str, class: &str, source: &Value) -> Value {
    json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment",
        "metadata": {"name": name},
        "spec": {"provisionerClassName": class, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"provisionerClassName": class, "source": source},
        }},
    })
}

/// Applies `object` as `user`, or as the administrator if `user` is `None`. Retries until the
/// webhook has read the class and the permissions.
async fn apply_admitted(cluster: &Cluster, object: &Value, user: Option<&str>) {
    wait::until_true(LONG, "the object is admitted", || async {
        let written = apply_as(cluster, object, user).await;
        match written.success() {
            Ok(_) => Ok(true),
            // The webhook has not yet read the class or the permissions.
            Err(error) => {
                anyhow::ensure!(error.to_string().contains("denied the request"), error);
                Ok(false)
            }
        }
    })
    .await
    .unwrap();
}

/// Waits until the condition `Unpacked` of a Bundle contains this text.
async fn until_reported(cluster: &Cluster, name: &str, text: &str) {
    let what = format!("bundle {name}");
    wait::until_true(LONG, &format!("{name}: {text}"), || async {
        let found = get(cluster, &what).await.unwrap_or_default();
        let reported = condition(&found, "Unpacked").to_string();
        if reported.contains(text) {
            return Ok(true);
        }
        anyhow::bail!("{reported}")
    })
    .await
    .unwrap();
}

async fn text_of(cluster: &Cluster, name: &str) -> Option<Value> {
    let found = get(cluster, &format!("configmap {name} -n default")).await;
    found.map(|found| found["data"]["text"].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn git_content_is_installed_and_rewritten_refs_are_not_followed() {
    let (cluster, mut webhook) = stage().await;
    let class = "gitsource";
    let mut repository = Repository::start(&cluster, class).await;
    let names = ["gitsource-branch", "gitsource-tag", "gitsource-commit"];
    for name in names {
        repository.bundle(name, "first");
    }
    let commit = repository.push(false).await;
    repository.allow(&cluster, class).await;
    let references = [
        json!({"branch": "main"}),
        json!({"tag": "v1"}),
        json!({"commit": commit}),
    ];
    for (name, reference) in names.into_iter().zip(&references) {
        let source = repository.source(class, name, reference);
        apply_admitted(&cluster, &deployment(name, class, &source), None).await;
    }
    let mut bundles = Vec::new();
    for name in names {
        installed(&cluster, name).await;
        assert_eq!(text_of(&cluster, name).await, Some(json!("first")));
        let found = kubectl(&cluster, &format!("get bundles -l app={name} -o name")).await;
        let bundle = found.trim().replace("bundle.core.rukpak.io/", "bundle ");
        let unpacked = get(&cluster, &bundle).await.unwrap();
        let resolved = &unpacked["status"]["resolvedSource"]["git"];
        assert_eq!(resolved["ref"], json!({"commit": commit}));
        assert_eq!(resolved["directory"], name);
        bundles.push((bundle, unpacked["status"]["content"].clone()));
    }

    // A rewritten branch and a moved tag are reported and not followed.
    for name in names {
        repository.bundle(name, "second");
    }
    let rewritten = repository.push(true).await;
    assert_ne!(rewritten, commit);
    for (bundle, content) in &bundles[..2] {
        let reported = until(&cluster, bundle, "SourceMoved", "True").await;
        let digest = content["digest"].as_str().unwrap();
        assert!(reported.contains(digest), "{reported}");
    }

    // After the loss of the cache, the pod fetches the recorded commit by its hash. The pod still
    // does not install the other commit.
    webhook.kill().unwrap();
    let cache = format!("webhook-{}", webhook.address().port());
    fs_err::remove_dir_all(cluster.folder().join("data").join(cache)).unwrap();
    for name in names {
        kubectl(&cluster, &format!("delete configmap {name} -n default")).await;
    }
    webhook.start().await.unwrap();
    for (name, (bundle, content)) in names.into_iter().zip(&bundles) {
        wait::until_true(LONG, &format!("{name} is back"), || async {
            Ok(text_of(&cluster, name).await == Some(json!("first")))
        })
        .await
        .unwrap();
        let now = get(&cluster, bundle).await.unwrap();
        assert_eq!(now["status"]["content"], *content);
    }

    // The pod rejects another host key.
    repository.server.change_host_key().await.unwrap();
    let source = repository.source(class, names[0], &json!({"tag": "v1"}));
    let name = "gitsource-hostkey";
    apply_admitted(&cluster, &bundle(name, class, &source), None).await;
    let text = "the host key of the server is not in ssh-knownhosts";
    until_reported(&cluster, name, text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn git_repositories_without_a_valid_bundle_are_rejected() {
    let (cluster, _webhook) = stage().await;
    let class = "githostile";
    let repository = Repository::start(&cluster, class).await;
    let symlink = |folder: &str, target: &str| {
        let folder = repository.work.join(folder).join("manifests");
        fs_err::create_dir_all(&folder).unwrap();
        fs_err::os::unix::fs::symlink(target, folder.join("all.yaml")).unwrap();
    };
    symlink("absolute", "/etc/passwd");
    symlink("relative", "../../../../../etc/passwd");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    repository.write("pointer/manifests/all.yaml", pointer);
    repository.bundle("valid", "hello");
    fs_err::os::unix::fs::symlink("valid", repository.work.join("linked")).unwrap();
    let first = repository.push(false).await;
    repository
        .git("submodule --quiet add ../web.git submodule/manifests")
        .await;
    repository.push(false).await;
    repository.allow(&cluster, class).await;
    for (name, directory, reference, text) in [
        (
            "absolute",
            "absolute",
            json!({"branch": "main"}),
            "has the symbolic link `absolute/manifests/all.yaml`",
        ),
        (
            "relative",
            "relative",
            json!({"branch": "main"}),
            "has the symbolic link `relative/manifests/all.yaml`",
        ),
        (
            "linked",
            "linked",
            json!({"branch": "main"}),
            "has the symbolic link `linked`",
        ),
        (
            "pointer",
            "pointer",
            json!({"branch": "main"}),
            "which is a Git LFS pointer",
        ),
        (
            "submodule",
            "submodule",
            json!({"branch": "main"}),
            "has the submodule `submodule/manifests`",
        ),
        (
            "gone",
            "gone",
            json!({"commit": first}),
            "has no directory `gone` with files",
        ),
        (
            "root",
            "",
            json!({"branch": "main"}),
            "readdir manifests: file does not exist",
        ),
        (
            "noref",
            "valid",
            json!({"branch": "other"}),
            "couldn't find remote ref refs/heads/other",
        ),
        (
            "nocommit",
            "valid",
            json!({"commit": "a".repeat(40)}),
            "the server does not serve the commit",
        ),
    ] {
        let name = format!("githostile-{name}");
        let source = repository.source(class, directory, &reference);
        apply_admitted(&cluster, &bundle(&name, class, &source), None).await;
        until_reported(&cluster, &name, text).await;
        kubectl(&cluster, &format!("delete bundle {name}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn git_fields_that_select_programs_files_or_hosts_are_rejected_at_admission() {
    let cluster = shared().await.unwrap();
    cluster.webhook().await.unwrap();
    let outside =
        r#"directory begins with "../": directory must define path within the repository"#;
    let outside = outside.replace("directory begins", "source.git.directory begins");
    for (field, value, text) in [
        (
            "repository",
            "file:///etc",
            "is neither an https nor an ssh URL",
        ),
        ("repository", "/etc", "is neither an https nor an ssh URL"),
        (
            "repository",
            "http://git.example.com/web",
            "is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "ext::sh",
            "is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "--upload-pack=id",
            "is neither an https nor an ssh URL",
        ),
        (
            "repository",
            "ssh://-oProxyCommand=id/web",
            "has an invalid host",
        ),
        (
            "repository",
            "https://2130706433/web",
            "has an invalid host",
        ),
        (
            "repository",
            "https://ana:secret@git.example.com/web",
            "contains credentials",
        ),
        (
            "repository",
            "https://127.0.0.1/web",
            "private address 127.0.0.1",
        ),
        ("repository", "https://[::1]/web", "private address [::1]"),
        (
            "repository",
            "https://169.254.169.254/web",
            "private address 169.254.169.254",
        ),
        (
            "repository",
            "git@localhost:web",
            "private address localhost",
        ),
        (
            "branch",
            "--upload-pack=id",
            "is not a valid name of a git ref",
        ),
        (
            "branch",
            "main:refs/heads/x",
            "is not a valid name of a git ref",
        ),
        ("tag", "v1 v2", "is not a valid name of a git ref"),
        ("commit", "HEAD", "is not a commit of 40 hexadecimal digits"),
        ("directory", "..", outside.as_str()),
        ("directory", "../x", outside.as_str()),
        ("directory", "a/../../x", outside.as_str()),
        ("directory", "/etc", "is absolute"),
        (
            "insecureSkipVerify",
            "",
            "does not allow insecureSkipVerify",
        ),
    ] {
        let mut git = json!({"repository": "https://git.example.com/web", "ref": {"tag": "v1"}});
        match field {
            "insecureSkipVerify" => git["auth"] = json!({"insecureSkipVerify": true}),
            "repository" | "directory" => git[field] = json!(value),
            member => git["ref"] = json!({member: value}),
        }
        let object = bundle("gitfields", CLASS, &json!({"type": "git", "git": git}));
        let reported = apply_as(&cluster, &object, None).await.failure(1).unwrap();
        assert!(reported.contains(text), "{value}: {reported}");
        assert!(!reported.contains("secret@"), "{reported}");
    }
    assert_eq!(get(&cluster, "bundle gitfields").await, None);
}
