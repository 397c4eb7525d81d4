//! Chapters of rejections: signatures, permissions, versions, moved tags, and writes without
//! admission.

use anyhow::{Result, ensure};

use super::{DemoRunner, registry};
use crate::bundles;

pub(super) async fn rejections(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    runner.say("The spec of a Bundle is immutable:");
    let bundle = runner
        .run_without_output(
            "kubectl get bundledeployment shop -o jsonpath='{.status.activeBundle}'",
        )
        .await?;
    runner.rejects(
        &format!("kubectl patch bundle {bundle} --type=merge -p '{{\"spec\":{{\"source\":{{\"image\":{{\"ref\":\"{registry}/other:1\"}}}}}}}}'"),
        &["Error from server (bundle.spec is immutable): admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable"],
    )
    .await?;

    runner.say("Not signed:");
    bundles::greeting(&runner.folder().join("unsigned"), "2.0.0", None)?;
    runner
        .run("kubectl bundle build unsigned --to unsigned-oci")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push unsigned-oci {registry}/unsigned:2.0.0"
        ))
        .await?;
    runner
        .rejects(
            &format!("kubectl bundle deploy unsigned {registry}/unsigned:2.0.0 --class production"),
            &["denied the request", "BUNDLE-TRUST-"],
        )
        .await?;

    runner.say("Signed, but by another key:");
    bundles::shop(&runner.folder().join("shop-forged"), "1.2.0")?;
    runner
        .run("kubectl bundle build shop-forged --to shop-forged-oci")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push shop-forged-oci {registry}/shop:1.2.0"
        ))
        .await?;
    runner
        .run("kubectl bundle keys generate --output-key-prefix mallory")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle sign --key mallory.key {registry}/shop:1.2.0"
        ))
        .await?;
    runner
        .rejects(
            &format!("kubectl bundle verify --key release.pub {registry}/shop:1.2.0"),
            &["BUNDLE-TRUST-"],
        )
        .await?;
    runner
        .rejects(
            &format!("kubectl bundle deploy shop {registry}/shop:1.2.0 --class production"),
            &["denied the request", "BUNDLE-TRUST-"],
        )
        .await?;

    runner.say("Signed, but older than what is installed:");
    runner
        .run(&format!(
            "kubectl bundle deploy shop {registry}/shop:1.0.0 --class production"
        ))
        .await?;
    runner.until(
        "the downgrade is rejected, and 1.1.0 stays",
        "kubectl get bundledeployment shop -o jsonpath='{.status.installed.version} stays: {range .status.conditions[?(@.type==\"Ready\")]}{.message}{\"\\n\"}{end}'",
        |out| out.starts_with("1.1.0 stays") && out.contains("forbids downgrades"),
    )
    .await?;
    runner
        .run(&format!(
            "kubectl bundle deploy shop {registry}/shop:1.1.0 --class production --wait"
        ))
        .await?;

    runner.say("A user without the verb `use` on the class is rejected; a binding grants it:");
    runner.run("kubectl create clusterrole bundle-author --verb=get,list,create,patch --resource=bundledeployments.core.rukpak.io").await?;
    runner.run("kubectl create clusterrolebinding ana-is-author --clusterrole=bundle-author --user=ana")
        .await?;
    let hers = format!(
        "kubectl bundle deploy hers {registry}/greeting:latest --class core-rukpak-io-plain --dry-run=server --as=ana"
    );
    runner
        .rejects(
            &hers,
            &["denied the request", "ana", "use", "core-rukpak-io-plain"],
        )
        .await?;
    runner.write(
        "use-plain.yaml",
        "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: use-plain}
rules:
- apiGroups: [core.rukpak.io]
  resources: [provisionerclasses]
  resourceNames: [core-rukpak-io-plain]
  verbs: [use]
",
    )?;
    runner.run("cat use-plain.yaml").await?;
    runner.run("kubectl apply -f use-plain.yaml").await?;
    runner
        .run("kubectl create clusterrolebinding ana-uses-plain --clusterrole=use-plain --user=ana")
        .await?;
    runner
        .until_quietly("the binding grants the permission", &hers, |_| true)
        .await?;

    runner.say("Made for other Kubernetes versions:");
    bundles::greeting(&runner.folder().join("old"), "3.0.0", Some(">=1.22 <1.25"))?;
    runner.run("kubectl bundle build old --to old-oci").await?;
    runner
        .run(&format!("kubectl bundle push old-oci {registry}/old:3.0.0"))
        .await?;
    runner
        .rejects(
            &format!("kubectl bundle deploy old {registry}/old:3.0.0"),
            &[
                "denied the request",
                ">=1.22 <1.25",
                "the version of the API server is v1.",
            ],
        )
        .await?;
    runner.say("`check` has the same findings before the object is created:");
    runner.write(
        "old.yaml",
        &format!(
            "apiVersion: core.rukpak.io/v1alpha1
kind: BundleDeployment
metadata: {{name: old}}
spec:
  provisionerClassName: core-rukpak-io-plain
  template:
    spec:
      provisionerClassName: core-rukpak-io-plain
      source: {{type: image, image: {{ref: '{registry}/old:3.0.0'}}}}
"
        ),
    )?;
    runner
        .rejects("kubectl bundle check -f old.yaml", &[">=1.22 <1.25"])
        .await?;
    Ok(())
}

pub(super) async fn moved_tag(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    let installed =
        "kubectl get bundledeployment greeting -o jsonpath='{.status.installed.digest}'";
    let before = runner.run_without_output(installed).await?;
    bundles::greeting(&runner.folder().join("moved"), "1.0.1", None)?;
    runner
        .run("kubectl bundle build moved --to moved-oci")
        .await?;
    runner
        .rejects(
            &format!("kubectl bundle push moved-oci {registry}/greeting:latest"),
            &["BUNDLE-REGISTRY-"],
        )
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push moved-oci {registry}/greeting:latest --overwrite-tag"
        ))
        .await?;
    runner.until(
        "the moved tag is reported",
        "kubectl get bundles -l app=greeting -o jsonpath='{range .items[*].status.conditions[?(@.type==\"SourceMoved\")]}{.status}: {.message}{\"\\n\"}{end}'",
        |out| out.starts_with("True"),
    )
    .await?;
    let after = runner.run_without_output(installed).await?;
    ensure!(
        before == after,
        "a moved tag changed what is installed: {before} to {after}"
    );
    runner.say("The installed content has not changed.");
    Ok(())
}

pub(super) async fn unreviewed(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    runner
        .say("An administrator removes the admission registrations, and a user creates an object:");
    runner.webhook.stop().await?;
    runner.run(
        "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration bundle-webhook",
    )
    .await?;
    runner.write(
        "sneaked.yaml",
        &format!(
            "apiVersion: core.rukpak.io/v1alpha1
kind: BundleDeployment
metadata: {{name: sneaked}}
spec:
  provisionerClassName: core-rukpak-io-plain
  template:
    spec:
      provisionerClassName: core-rukpak-io-plain
      source: {{type: image, image: {{ref: '{registry}/unsigned:2.0.0'}}}}
"
        ),
    )?;
    runner.run("kubectl apply -f sneaked.yaml").await?;
    runner.webhook.register().await?;
    runner.webhook.start().await?;
    runner.webhook.wait_for_admission().await?;
    runner.say("The webhook is back:");
    runner.until(
        "it is reported and not installed",
        "kubectl get bundledeployment sneaked -o jsonpath='{range .status.conditions[?(@.type==\"Installed\")]}{.status} {.reason}: {.message}{\"\\n\"}{end}'",
        |out| out.starts_with("False") || out.starts_with("Unknown"),
    )
    .await?;
    runner
        .run("kubectl delete bundledeployment sneaked --timeout=60s")
        .await?;
    runner.say("For a few seconds the webhook rejects deletions, because it cannot know whether they were reviewed:");
    runner
        .until(
            "deletions are admitted again",
            "kubectl delete bundledeployment shop --dry-run=server",
            |_| true,
        )
        .await?;
    Ok(())
}

pub(super) async fn clean_up(runner: &mut DemoRunner<'_>) -> Result<()> {
    runner
        .run("kubectl delete bundledeployment shop greeting --timeout=60s")
        .await?;
    runner.until(
        "nothing of the shop is left",
        "kubectl get all,configmaps,secrets,networkpolicies,crds,roles -A -l 'core.rukpak.io/owner-name in (shop, greeting)' -o name | wc -l",
        |out| out.trim() == "0",
    )
    .await?;
    runner.run("kubectl get bundles,bundledeployments").await?;
    Ok(())
}
