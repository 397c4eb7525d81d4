//! Chapters of authors and administrators: build, sign and push a bundle, and set up a class and a
//! policy.

use anyhow::{Result, ensure};

use super::{DemoRunner, registry};
use crate::bundles;
use crate::webhook::{NAMESPACE, STATE_NAMESPACE};

pub(super) async fn package(runner: &mut DemoRunner<'_>) -> Result<()> {
    bundles::shop(&runner.folder().join("shop"), "1.0.0")?;
    bundles::copy_deploy(&runner.folder().join("bundle-webhook"))?;
    runner.say(
        "Two folders: a shop of more than two hundred objects, and this project's own manifests.",
    );
    runner.run("ls shop shop/manifests | head -20").await?;
    runner.run("cat shop/bundle.yaml").await?;
    runner.say("One artifact, and the same digest on every run and machine:");
    let first = runner
        .run("kubectl bundle build shop --to shop-1.0.0")
        .await?;
    let again = runner
        .run("kubectl bundle build shop --to shop-again")
        .await?;
    ensure!(
        first == again,
        "two builds of one folder differ: {first} and {again}"
    );
    runner
        .run("kubectl bundle build bundle-webhook --to bundle-webhook-oci")
        .await?;
    runner.run("kubectl bundle inspect shop-1.0.0").await?;
    Ok(())
}

pub(super) async fn ship(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    let pinned = runner
        .run(&format!(
            "kubectl bundle push shop-1.0.0 {registry}/shop:1.0.0"
        ))
        .await?;
    DemoRunner::pinned(&pinned)?;
    runner.say("A second push of the same content does nothing:");
    runner
        .run(&format!(
            "kubectl bundle push shop-1.0.0 {registry}/shop:1.0.0"
        ))
        .await?;
    runner
        .run(&format!(
            "kubectl bundle push bundle-webhook-oci {registry}/bundle-webhook:0.1.0"
        ))
        .await?;
    runner.say("A key pair in cosign's format; its password comes from BUNDLE_PASSWORD here, and from a prompt otherwise.");
    runner
        .run("kubectl bundle keys generate --output-key-prefix release")
        .await?;
    runner
        .run(&format!(
            "kubectl bundle sign --key release.key {registry}/shop:1.0.0"
        ))
        .await?;
    runner
        .run(&format!(
            "kubectl bundle sign --key release.key {registry}/bundle-webhook:0.1.0"
        ))
        .await?;
    runner
        .run(&format!(
            "kubectl bundle verify --key release.pub {registry}/shop:1.0.0"
        ))
        .await?;
    Ok(())
}

pub(super) async fn govern(runner: &mut DemoRunner<'_>) -> Result<()> {
    let registry = registry(runner)?;
    let key = runner.run_without_output("cat release.pub").await?;
    let key = format!("        {}\n", key.trim_end().replace('\n', "\n        "));
    runner.write(
        "governance.yaml",
        &format!(
            "apiVersion: core.rukpak.io/v1alpha1
kind: ProvisionerClass
metadata:
  name: production
spec:
  provisioner: core.rukpak.io/plain
  serviceAccount: {{namespace: {NAMESPACE}, name: installer}}
  authorization: Requester
  signatures: Required
  # The project installs itself: its own namespaces have to be named.
  targets: {{namespaces: ['*', {NAMESPACE}, {STATE_NAMESPACE}]}}
---
apiVersion: core.rukpak.io/v1alpha1
kind: SignaturePolicy
metadata:
  name: releases
spec:
  images:
  - glob: {registry}/shop
  - glob: {registry}/bundle-webhook
  mode: enforce
  versions: {{allowDowngrade: false}}
  authorities:
  - name: release-key
    key:
      data: |
{key}"
        ),
    )?;
    runner.run("cat governance.yaml").await?;
    runner.run("kubectl apply -f governance.yaml").await?;
    Ok(())
}
