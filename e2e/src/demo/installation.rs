//! Chapters of installation: install, adopt, revert drift, and upgrade.

use anyhow::{Context, Result, ensure};

use super::{DemoRunner, registry};
use crate::bundles;

pub(super) async fn install(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    runner
        .run(&format!(
            "kubectl bundle deploy shop {registry}/shop:1.0.0 --class production"
        ))
        .await?;
    runner
        .run("kubectl wait --for=condition=Installed bundledeployment/shop --timeout=60s")
        .await?;
    runner.run("kubectl get bundles,bundledeployments").await?;
    let objects = runner
        .run("kubectl get bundledeployment shop -o jsonpath='{.status.installed.objects} objects of version {.status.installed.version}, for {.status.installed.requestedBy}{\"\\n\"}'")
        .await?;
    let count: usize = objects
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("no count in `{objects}`"))?;
    ensure!(count >= 200, "only {count} objects");
    runner.say("Custom resources came in the same bundle as their CustomResourceDefinitions:");
    runner
        .run("kubectl get crds -l core.rukpak.io/owner-name=shop")
        .await?;
    runner.run("kubectl get all,configmaps,networkpolicies -A -l core.rukpak.io/owner-name=shop --no-headers | wc -l").await?;
    Ok(())
}

pub(super) async fn adopt(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    runner.say("The objects of the project exist and have no owner. Adoption requires `--collision Adopt`.");
    runner.run(&format!(
        "kubectl bundle deploy bundle-webhook {registry}/bundle-webhook:0.1.0 --class production --collision Adopt --wait"
    ))
    .await?;
    runner
        .run("kubectl get deployments,services,serviceaccounts -n bundle-system")
        .await?;
    bundles::greeting(&runner.folder().join("greeting"), "1.0.0", None)?;
    runner
        .run("kubectl bundle build greeting --to greeting-oci")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push greeting-oci {registry}/greeting:latest"
        ))
        .await?;
    runner.write(
        "rukpak.yaml",
        &format!(
            "apiVersion: core.rukpak.io/v1alpha1
kind: BundleDeployment
metadata:
  name: greeting
spec:
  provisionerClassName: core-rukpak-io-plain
  template:
    metadata:
      labels:
        app: greeting
    spec:
      provisionerClassName: core-rukpak-io-plain
      source:
        type: image
        image:
          ref: {registry}/greeting:latest
"
        ),
    )?;
    runner.run("cat rukpak.yaml").await?;
    runner.run("kubectl apply -f rukpak.yaml").await?;
    runner
        .run("kubectl wait --for=condition=Installed bundledeployment/greeting --timeout=60s")
        .await?;
    runner.run("kubectl get bundles -l app=greeting").await?;
    Ok(())
}

pub(super) async fn drift(runner: &mut DemoRunner<'_>) -> Result<()> {
    let config = runner
        .run_without_output("kubectl get configmaps -A -l core.rukpak.io/owner-name=shop -o jsonpath='{.items[0].metadata.namespace} {.items[0].metadata.name}'")
        .await?;
    let (namespace, name) = config
        .split_once(' ')
        .context("the shop has no ConfigMap")?;
    let deployment = runner
        .run_without_output("kubectl get deployments -A -l core.rukpak.io/owner-name=shop -o jsonpath='{.items[0].metadata.namespace} {.items[0].metadata.name}'")
        .await?;
    let (deployment_namespace, deployment) = deployment
        .split_once(' ')
        .context("the shop has no Deployment")?;

    runner
        .run(&format!("kubectl delete configmap {name} -n {namespace}"))
        .await?;
    runner
        .until_quietly(
            "the deleted ConfigMap is restored",
            &format!("kubectl get configmap {name} -n {namespace} -o name"),
            |out| out.contains("configmap/"),
        )
        .await?;

    runner.run(&format!("kubectl set image deployment/{deployment} -n {deployment_namespace} '*=registry.example.com/evil:1'")).await?;
    runner.until_quietly(
            "the changed image is restored",
            &format!("kubectl get deployment {deployment} -n {deployment_namespace} -o jsonpath='{{.spec.template.spec.containers[*].image}}'"),
            |out| !out.contains("evil"),
        )
        .await?;

    runner.say("Fields of other field managers stay:");
    runner.run(&format!("kubectl annotate deployment {deployment} -n {deployment_namespace} example.com/note='call Ana first'")).await?;
    runner
        .run(&format!(
            "kubectl rollout restart deployment/{deployment} -n {deployment_namespace}"
        ))
        .await?;
    runner
        .run(&format!("kubectl delete configmap {name} -n {namespace}"))
        .await?;
    runner
        .until_quietly(
            "the ConfigMap is restored again",
            &format!("kubectl get configmap {name} -n {namespace} -o name"),
            |out| out.contains("configmap/"),
        )
        .await?;
    let kept = runner
        .run(&format!(
            "kubectl get deployment {deployment} -n {deployment_namespace} -o jsonpath='{{.metadata.annotations.example\\.com/note}}, restarted {{.spec.template.metadata.annotations.kubectl\\.kubernetes\\.io/restartedAt}}{{\"\\n\"}}'"
        ))
        .await?;
    ensure!(
        kept.contains("call Ana first") && kept.contains("restarted 2"),
        "foreign fields were lost: {kept}"
    );
    Ok(())
}

pub(super) async fn upgrade(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    let names = "kubectl get configmaps,services,cronjobs -A -l core.rukpak.io/owner-name=shop -o name | sort";
    let before = runner.run_without_output(names).await?;
    bundles::shop(&runner.folder().join("shop-next"), "1.1.0")?;
    runner
        .run("kubectl bundle build shop-next --to shop-1.1.0")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push shop-1.1.0 {registry}/shop:1.1.0"
        ))
        .await?;
    runner
        .run(&format!(
            "kubectl bundle sign --key release.key {registry}/shop:1.1.0"
        ))
        .await?;
    runner
        .run(&format!(
            "kubectl bundle deploy shop {registry}/shop:1.1.0 --class production --wait"
        ))
        .await?;
    runner
        .until(
            "version 1.1.0 is installed",
            "kubectl get bundledeployment shop -o jsonpath='{.status.installed.version}{\"\\n\"}'",
            |out| out.trim() == "1.1.0",
        )
        .await?;
    let dropped = |after: &str| {
        before
            .lines()
            .filter(|name| !after.lines().any(|other| other == *name))
            .count()
    };
    let was = before.clone();
    runner
        .until_quietly(
            "objects that version 1.1.0 does not have are deleted",
            names,
            |after| {
                after.lines().count() > 0
                    && was
                        .lines()
                        .any(|name| !after.lines().any(|other| other == name))
            },
        )
        .await?;
    let after = runner.run_without_output(names).await?;
    runner.say(&format!("{} objects of 1.0.0 are pruned.", dropped(&after)));
    runner
        .run("kubectl get bundles -l core.rukpak.io/owner-name=shop")
        .await?;
    Ok(())
}
