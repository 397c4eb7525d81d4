//! Packages that other projects published: built, rendered, installed in the same cluster, and
//! removed. Their Pods do not run, because the cluster has no node. Operators in bundles are in
//! `real_operators`.

use std::path::Path;

use e2e::tools::published;
use e2e::{Cluster, Tool};
use serde_json::Value;

use crate::scenarios::reconcile::{condition, get, publish, stage};

/// Files and folders of Kubernetes' addons that form one package.
struct Addon {
    name: &'static str,
    manifests: &'static [&'static str],
}

/// The first package registers an API that no server serves. Therefore discovery fails in part
/// while the other packages are installed.
const ADDONS: [Addon; 7] = [
    Addon {
        name: "real-metrics-server",
        manifests: &["metrics-server"],
    },
    Addon {
        name: "real-calico",
        manifests: &["calico-policy-controller"],
    },
    Addon {
        name: "real-volume-snapshots",
        manifests: &[
            "volumesnapshots/crd",
            "volumesnapshots/volume-snapshot-controller",
        ],
    },
    Addon {
        name: "real-dns-autoscaler",
        manifests: &["dns-horizontal-autoscaler"],
    },
    Addon {
        name: "real-ip-masq-agent",
        manifests: &["ip-masq-agent"],
    },
    Addon {
        name: "real-network-policies",
        manifests: &["kube-network-policies"],
    },
    Addon {
        name: "real-event-exporter",
        manifests: &["fluentd-gcp/event-exporter.yaml"],
    },
];
/// The operator of Dask, which is installed into its own namespace.
const DASK: &str = "real-dask";
const DASK_CHART: &str = "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator";
/// Addon with a misspelt field.
const MISSPELT: Addon = Addon {
    name: "real-node-problem-detector",
    manifests: &["node-problem-detector"],
};

fn start(name: &str, folder: &Path) -> anyhow::Result<()> {
    fs_err::create_dir_all(folder.join("manifests"))?;
    let header = "apiVersion: bundle.core.rukpak.io/v1alpha1\nkind: Package\nversion: 1.0.0\nformat: plain+v0\n";
    fs_err::write(
        folder.join("bundle.yaml"),
        format!("{header}name: {name}\n"),
    )?;
    Ok(())
}

/// Writes the addon as a bundle of plain manifests.
fn write(addon: &Addon, addons: &Path, folder: &Path) -> anyhow::Result<()> {
    start(addon.name, folder)?;
    for manifests in addon.manifests {
        let source = addons.join(manifests);
        let mut files = vec![source.clone()];
        if source.is_dir() {
            let entries: Result<Vec<_>, _> = fs_err::read_dir(source)?.collect();
            files = entries?.into_iter().map(|entry| entry.path()).collect();
        }
        for file in files {
            if file.extension().is_some_and(|kind| kind == "yaml") {
                let name = file.file_name().unwrap_or_default();
                // The files are written and not copied, because files of Go's module cache are
                // read-only.
                let text = fs_err::read_to_string(&file)?;
                fs_err::write(folder.join("manifests").join(name), text)?;
            }
        }
    }
    Ok(())
}

async fn run(cluster: &Cluster, line: &str) -> String {
    let words = line.split(' ').filter(|word| !word.is_empty());
    let output = cluster.kubectl_bundle(words).await.unwrap();
    output.success().unwrap()
}

/// Returns the names of the objects of `kind`.
async fn names(cluster: &Cluster, kind: &str) -> Vec<Value> {
    let found = get(cluster, kind).await.unwrap_or_default();
    let items = found["items"].as_array().into_iter().flatten();
    items.map(|item| item["metadata"]["name"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_of_other_projects_are_installed_without_drift_and_removed_completely() {
    let addons = published::kubernetes_addons().await.unwrap();
    let chart = published::python_packages().await.unwrap().join(DASK_CHART);
    let (cluster, _webhook) = stage().await;
    let kinds = ["namespaces", "crd", "clusterroles", "clusterrolebindings"];
    let mut before = Vec::new();
    for kind in kinds {
        before.push(names(&cluster, kind).await);
    }

    let mut packages = Vec::new();
    for addon in &ADDONS {
        let reference = format!("real/{}:1.0.0", addon.name);
        let write = |folder: &Path| write(addon, &addons, folder);
        let reference = publish(&cluster, &reference, write).await;
        packages.push((addon.name, reference, ""));
    }
    let helm = cluster.tool(Tool::Helm).await.unwrap();
    let words = [
        "template",
        "dask",
        &chart.display().to_string(),
        "--include-crds",
    ];
    let rendered = helm.args(words).output().await.unwrap().success().unwrap();
    let reference = publish(&cluster, "real/dask:1.0.0", |folder| {
        start(DASK, folder)?;
        Ok(fs_err::write(folder.join("manifests/all.yaml"), &rendered)?)
    })
    .await;
    packages.push((DASK, reference, "-n real-dask --create-namespace"));

    for (name, reference, more) in &packages {
        let line = format!("deploy {name} {reference} --wait {more}");
        run(&cluster, &line).await;
    }
    // All packages are installed at the same time.
    for (name, reference, more) in &packages {
        let what = format!("bundledeployment {name}");
        let found = get(&cluster, &what).await.unwrap();
        for (kind, status) in [("Installed", "True"), ("Drifted", "False")] {
            let message = condition(&found, kind);
            assert_eq!(message["status"], status, "{name}: {message}");
        }
        let target = more.trim_end_matches(" --create-namespace");
        let shown = run(&cluster, &format!("render {reference} {target}")).await;
        let kinds = shown.lines().filter(|line| line.starts_with("kind: "));
        let installed = &found["status"]["installed"]["objects"];
        // The created namespace is an additional object.
        let created = usize::from(target != *more);
        assert_eq!(*installed, kinds.count() + created, "{name}");
    }
    for (name, _, _) in &packages {
        run(&cluster, &format!("delete {name} --wait")).await;
    }
    for (kind, before) in kinds.into_iter().zip(before) {
        assert_eq!(names(&cluster, kind).await, before, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn build_rejects_a_published_package_with_a_misspelt_field() {
    let addons = published::kubernetes_addons().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    write(&MISSPELT, &addons, folder.path()).unwrap();
    let programs = e2e::programs::get().await.unwrap();
    let build = e2e::host::command::Command::new(&programs.plugin)
        .args(["build", "--dry-run"])
        .args([folder.path()]);
    let refused = build.output().await.unwrap().failure(3).unwrap();
    assert!(
        refused.contains("spec.template.spec.nodeSelectors: unknown field; did you mean `nodeSelector`? [BUNDLE-CHECK-013]"),
        "{refused}"
    );
}
