//! Randomized tests of the reconciler: actors patch, delete, scale, relabel and forge objects,
//! upgrade, roll back and remove deployments, and kill the webhook. After the actors stop, the
//! cluster must become equal to the model of the last revisions.
#![expect(
    clippy::disallowed_methods,
    reason = "the code of the tests chooses all object names"
)]

mod actions;
mod model;
mod options;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bundle_core::diagnostic::{Code, codes};
use kube::Client;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

use self::model::{Key, Package};
use self::options::Action;
pub use self::options::{SoakMix, SoakOptions, SoakReport};
use crate::{Cluster, Webhook, WebhookOptions, wait};

/// Time limit from the last action until the cluster equals the model. The maximum backoff of a
/// restore is 30 s.
const CONVERGENCE: Duration = Duration::from_secs(120);
/// Errors of `kubectl bundle rollback` if no other revision can be written.
const NO_OTHER_REVISION: [&Code; 3] = [
    &codes::cluster::NO_REVISION,
    &codes::cluster::REVISION_NOT_KEPT,
    &codes::cluster::REVISION_ACTIVE,
];
/// Maximum pause between two actions, in milliseconds.
const MAX_PAUSE_MS: u64 = 300;

/// Installed or removed package, and the objects in its namespace that no bundle contains.
struct PackageState {
    package: Package,
    /// Installed revision; `None` if the package is removed.
    revision: Option<u32>,
    unmanaged: Vec<Value>,
}

/// Runs rounds of disturbances until the duration in `options` has passed. If a round does not
/// converge, returns an error with the difference from the model.
pub async fn run(options: SoakOptions, say: &mut dyn FnMut(&str)) -> Result<SoakReport> {
    let cluster = Cluster::builder().registries(1).start().await?;
    let mut webhook = cluster.start_webhook(WebhookOptions::default()).await?;
    let outcome = rounds(&cluster, &mut webhook, options, say).await;
    if outcome.is_err() {
        say(&format!(
            "the logs are kept in {}",
            cluster.keep_logs()?.display()
        ));
    }
    outcome
}

async fn rounds(
    cluster: &Cluster,
    webhook: &mut Webhook,
    options: SoakOptions,
    say: &mut dyn FnMut(&str),
) -> Result<SoakReport> {
    let client = cluster.client().await?;
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut packages = Vec::new();
    for number in 0..options.packages {
        let package = publish(cluster, &format!("soak-{number}")).await?;
        let installed = PackageState {
            package,
            revision: Some(0),
            unmanaged: Vec::new(),
        };
        deploy(cluster, &installed).await?;
        packages.push(installed);
    }
    let mut report = SoakReport::default();
    converged(cluster, &client, &packages).await?;
    let began = Instant::now();
    while began.elapsed() < options.duration || report.kills < options.min_kills {
        let round = Instant::now();
        while round.elapsed() < options.round {
            disturb(
                cluster,
                webhook,
                &client,
                options.mix,
                &mut random,
                &mut packages,
                &mut report,
            )
            .await?;
            // Time between two actions. No assertion depends on this time.
            tokio::time::sleep(Duration::from_millis(random.random_range(0..MAX_PAUSE_MS))).await;
        }
        for installed in &mut packages {
            if installed.revision.is_none() && random.random_bool(0.7) {
                installed.revision = Some(random.random_range(0..model::REVISIONS));
                deploy(cluster, installed).await?;
                report.removals += 1;
            }
        }
        let stopped = Instant::now();
        converged(cluster, &client, &packages)
            .await
            .with_context(|| format!("round {} with seed {}", report.rounds, options.seed))?;
        report.convergence.push(stopped.elapsed());
        report.rounds += 1;
        say(&report.to_string());
    }
    Ok(report)
}

/// Runs one random action.
async fn disturb(
    cluster: &Cluster,
    webhook: &mut Webhook,
    client: &Client,
    mix: SoakMix,
    random: &mut StdRng,
    packages: &mut [PackageState],
    report: &mut SoakReport,
) -> Result<()> {
    let index = random.random_range(0..packages.len());
    let installed = &mut packages[index];
    let action = mix
        .actions()
        .choose_weighted(random, |(_, weight)| *weight)?;
    match action.0 {
        Action::Kill => {
            report.kills += 1;
            webhook.kill()?;
            webhook.start().await
        }
        Action::InstallOrRemove => {
            report.removals += 1;
            if installed.revision.take().is_some() {
                // The reconciler does not delete a namespace that contains objects of other owners,
                // and the next installation could not create a namespace that exists. Therefore the
                // test deletes these objects.
                for object in installed.unmanaged.drain(..) {
                    actions::apply_change(client, random, actions::Change::Delete, &object).await?;
                }
                let line = format!(
                    "delete bundledeployment {} --wait=false",
                    installed.package.name
                );
                cluster.kubectl(line.split(' ')).await?.success()?;
                return Ok(());
            }
            installed.revision = Some(random.random_range(0..model::REVISIONS));
            deploy(cluster, installed).await
        }
        Action::Upgrade => {
            if installed.revision.is_none() {
                return Ok(());
            }
            report.upgrades += 1;
            installed.revision = Some(random.random_range(0..model::REVISIONS));
            deploy(cluster, installed).await
        }
        Action::RollBack => {
            if installed.revision.is_some()
                && let Some(revision) = roll_back(cluster, client, &installed.package).await?
            {
                report.rollbacks += 1;
                installed.revision = Some(revision);
            }
            Ok(())
        }
        Action::CreateUnmanaged => {
            if installed.revision.is_some() {
                let number = random.random_range(0..1_000_000);
                installed.unmanaged.extend(
                    actions::create_unmanaged_config_map(client, &installed.package.name, number)
                        .await?,
                );
            }
            Ok(())
        }
        Action::Change => {
            let Some(revision) = installed.revision else {
                return Ok(());
            };
            let change = actions::choose(random);
            let objects = model::objects(&installed.package.name, revision);
            let fits = |object: &&Value| match change {
                // A deletion of the namespace would also delete the objects of other owners.
                actions::Change::Delete => object["kind"] != "Namespace",
                actions::Change::Scale => object["kind"] == "Deployment",
                _ => true,
            };
            let candidates: Vec<&Value> = objects.iter().filter(fits).collect();
            let Some(object) = candidates.choose(random) else {
                return Ok(());
            };
            report.changes += 1;
            actions::apply_change(client, random, change, object).await
        }
    }
}

/// Builds and pushes all revisions of a package.
async fn publish(cluster: &Cluster, name: &str) -> Result<Package> {
    let mut references = Vec::new();
    for revision in 0..model::REVISIONS {
        let version = format!("1.{revision}.0");
        let folder = cluster
            .folder()
            .join("data")
            .join(format!("{name}-{revision}"));
        write(&folder, name, &version, revision)?;
        let reference = cluster.registry(0)?.reference(&format!("{name}:{version}"));
        let folder = folder.display().to_string();
        let pushed = cluster
            .kubectl_bundle(["push", &folder, &reference])
            .await?
            .success()?;
        references.push(pushed.lines().last().unwrap_or_default().to_owned());
    }
    Ok(Package {
        name: name.to_owned(),
        references,
    })
}

fn write(folder: &Path, name: &str, version: &str, revision: u32) -> Result<()> {
    crate::bundles::package(folder, name, version, "Content of the soak", None)?;
    fs_err::create_dir_all(folder.join("manifests"))?;
    let documents: Vec<_> = model::objects(name, revision)
        .iter()
        .map(ToString::to_string)
        .collect();
    fs_err::write(
        folder.join("manifests/objects.yaml"),
        documents.join("\n---\n"),
    )?;
    Ok(())
}

/// Writes the BundleDeployment of a package. Retries while a BundleDeployment with the same name is
/// being removed or the webhook starts.
async fn deploy(cluster: &Cluster, installed: &PackageState) -> Result<()> {
    let Package { name, references } = &installed.package;
    let Some(reference) = installed
        .revision
        .and_then(|revision| references.get(revision as usize))
    else {
        bail!("{name} has no such revision");
    };
    let class = "core-rukpak-io-plain";
    let object = json!({
        "apiVersion": "core.rukpak.io/v1alpha1", "kind": "BundleDeployment", "metadata": {"name": name},
        "spec": {
            "provisionerClassName": class,
            "rollout": {"allowDowngrade": true},
            "template": {"metadata": {"labels": {"soak": name}}, "spec": {
                "provisionerClassName": class, "source": {"type": "image", "image": {"ref": reference}},
            }},
        },
    });
    wait::until_true(CONVERGENCE, &format!("{name} is written"), || async {
        let line = format!("get bundledeployment {name} --ignore-not-found -o jsonpath={{.metadata.deletionTimestamp}}");
        let deleted = cluster.kubectl(line.split(' ')).await?.success()?;
        ensure!(deleted.is_empty(), "it is being deleted since {deleted}");
        let kubectl = cluster.tool(crate::Tool::Kubectl).await?;
        // The apply uses the field manager of the plugin, so that `kubectl bundle rollback` has no
        // conflict.
        let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=kubectl-bundle", "-f", "-"];
        let applied = kubectl.args(apply).stdin(object.to_string()).output().await?;
        applied.success()?;
        Ok(true)
    })
    .await
}

/// Runs `kubectl bundle rollback`, and returns the revision of the written template. Returns `None`
/// if no other revision can be written. Retries other errors, for example while the webhook starts.
async fn roll_back(cluster: &Cluster, client: &Client, package: &Package) -> Result<Option<u32>> {
    let name = &package.name;
    let is_written = AtomicBool::new(false);
    wait::until_true(CONVERGENCE, &format!("{name} is rolled back"), || async {
        let line = ["rollback", name, "--wait=false"];
        let output = cluster.kubectl_bundle(line).await?;
        let has_code = |code: &&Code| output.stderr.contains(code.id);
        if !NO_OTHER_REVISION.iter().any(has_code) {
            output.success()?;
            is_written.store(true, Ordering::Relaxed);
        }
        Ok(true)
    })
    .await?;
    if !is_written.into_inner() {
        return Ok(None);
    }
    let deployment = actions::api(client, &deployment_key(name))
        .get(name)
        .await?;
    let reference = deployment.data["spec"]["template"]["spec"]["source"]["image"]["ref"]
        .as_str()
        .unwrap_or_default();
    let mut references = package.references.iter();
    let index = references.position(|candidate| candidate == reference);
    let index = index.with_context(|| format!("{name} has the unknown reference {reference}"))?;
    Ok(Some(u32::try_from(index)?))
}

/// Returns the key of the BundleDeployment `name`.
fn deployment_key(name: &str) -> Key {
    Key {
        api_version: "core.rukpak.io/v1alpha1".to_owned(),
        kind: "BundleDeployment".to_owned(),
        namespace: None,
        name: name.to_owned(),
    }
}

/// Waits until the cluster equals the model.
async fn converged(cluster: &Cluster, client: &Client, packages: &[PackageState]) -> Result<()> {
    for installed in packages {
        let name = &installed.package.name;
        wait::until_true(
            CONVERGENCE,
            &format!("{name} is as its revision says"),
            || async {
                match installed.revision {
                    Some(revision) => is_installed(client, installed, revision).await?,
                    None => is_removed(cluster, name).await?,
                }
                Ok(true)
            },
        )
        .await?;
    }
    Ok(())
}

/// Returns an error if the cluster differs from the model of an installed package. The error names
/// the first difference.
async fn is_installed(client: &Client, installed: &PackageState, revision: u32) -> Result<()> {
    let name = &installed.package.name;
    let expected = model::objects(name, revision);
    for object in &expected {
        let key = Key::of(object);
        let found = actions::api(client, &key).get_opt(&key.name).await?;
        let found = found.with_context(|| format!("{} {} is missing", key.kind, key.name))?;
        compare(object, &serde_json::to_value(found)?)?;
    }
    for (api_version, kind) in actions::kinds(name) {
        for found in actions::list(client, name, &api_version, &kind).await? {
            let key = Key::of(&found);
            if let Some(object) = installed
                .unmanaged
                .iter()
                .find(|object| Key::of(object) == key)
            {
                compare(object, &found)?;
                continue;
            }
            let automatic = matches!(
                (kind.as_str(), key.name.as_str()),
                ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default")
            );
            ensure!(
                automatic || expected.iter().any(|object| Key::of(object) == key),
                "{} {} of another revision is still there",
                key.kind,
                key.name
            );
        }
        let unmanaged = installed
            .unmanaged
            .iter()
            .filter(|object| object["kind"] == kind.as_str());
        for object in unmanaged {
            let key = Key::of(object);
            let found = actions::api(client, &key).get_opt(&key.name).await?;
            ensure!(
                found.is_some(),
                "the unmanaged {} {} is missing",
                key.kind,
                key.name
            );
        }
    }
    let deployment = actions::api(client, &deployment_key(name))
        .get(name)
        .await?;
    let deployment = serde_json::to_value(deployment)?;
    for (kind, status) in [
        ("Installed", "True"),
        ("Drifted", "False"),
        ("Ready", "True"),
    ] {
        let conditions = deployment["status"]["conditions"].as_array();
        let found = conditions
            .into_iter()
            .flatten()
            .find(|found| found["type"] == kind);
        ensure!(
            found.is_some_and(|found| found["status"] == status),
            "the condition {kind} of {name} is {}",
            found.unwrap_or(&Value::Null)
        );
    }
    Ok(())
}

fn compare(expected: &Value, found: &Value) -> Result<()> {
    let key = Key::of(expected);
    match model::difference(expected, found, "") {
        None => Ok(()),
        Some(difference) => bail!("{} {}: {difference}", key.kind, key.name),
    }
}

/// Returns an error if objects of a removed package still exist. The error names these objects.
async fn is_removed(cluster: &Cluster, name: &str) -> Result<()> {
    let definition = format!("customresourcedefinition/soaks.{}", model::group(name));
    for object in [
        format!("bundledeployment/{name}"),
        format!("namespace/{name}"),
        definition,
    ] {
        let found = cluster
            .kubectl(["get", &object, "--ignore-not-found", "-o", "name"])
            .await?
            .success()?;
        ensure!(found.is_empty(), "{object} is still there");
    }
    Ok(())
}
