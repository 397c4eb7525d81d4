//! Chapters of the story: command lines, and their expected output. `teller` runs them.

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::Teller;
use crate::bundles;
use crate::webhook::{NAMESPACE, STATE_NAMESPACE};

/// A title, and what happens.
pub struct Chapter {
    /// Title as displayed.
    pub title: &'static str,
    tell: for<'t, 'a> fn(&'t mut Teller<'a>) -> LocalBoxFuture<'t, Result<()>>,
}

macro_rules! chapters {
    ($($title:literal => $function:ident,)*) => {
        /// All chapters in order; each depends on the earlier ones.
        pub const CHAPTERS: &[Chapter] = &[$(Chapter { title: $title, tell: |teller| $function(teller).boxed_local() }),*];
    };
}

chapters! {
    "From a folder of manifests to one artifact" => package,
    "Signed, pushed, verified" => ship,
    "Who may install what: a class and a signature policy" => govern,
    "Installed: two hundred objects, their CRDs among them" => install,
    "The project installs itself, and RukPak's own YAML works unchanged" => others,
    "What is changed behind its back comes back; what is somebody else's stays" => drift,
    "A new version pivots, and what it dropped is pruned" => pivot,
    "Refusals" => refusals,
    "A moved tag moves nothing" => moved_tag,
    "Written while admission was off: reported, not installed" => stampless,
    "Deleting cleans up" => clean_up,
}

/// Objects that the story creates outside of bundles, as kubectl's `TYPE/NAME`. They may remain
/// after a failure. Objects of bundles are deleted with them after success.
pub const OUTSIDE: &[&str] = &[
    "clusterrole/bundle-author",
    "clusterrole/use-plain",
    "clusterrolebinding/ana-is-author",
    "clusterrolebinding/ana-uses-plain",
    "namespace/shop",
    "namespace/greeting",
    "clusterrole/shop-features",
    "priorityclass/shop-critical",
    "customresourcedefinition/queues.shop.example.com",
    "customresourcedefinition/features.shop.example.com",
];

/// Runs one chapter.
pub async fn tell(teller: &mut Teller<'_>, number: usize) -> Result<()> {
    let chapter = &CHAPTERS[number];
    teller.chapter(number + 1, chapter.title);
    (chapter.tell)(teller)
        .await
        .with_context(|| format!("chapter {}, \"{}\"", number + 1, chapter.title))
}

fn registry(teller: &Teller<'_>) -> Result<String> {
    Ok(teller.cluster.registry(0)?.host())
}

async fn package(t: &mut Teller<'_>) -> Result<()> {
    bundles::shop(&t.folder().join("shop"), "1.0.0")?;
    bundles::copy_deploy(&t.folder().join("bundle-webhook"))?;
    t.say(
        "Two folders: a shop of more than two hundred objects, and this project's own manifests.",
    );
    t.run("ls shop shop/manifests | head -20").await?;
    t.run("cat shop/bundle.yaml").await?;
    t.say("One artifact, and the same digest on every run and machine:");
    let first = t.run("kubectl bundle build shop --to shop-1.0.0").await?;
    let again = t.run("kubectl bundle build shop --to shop-again").await?;
    ensure!(
        first == again,
        "two builds of one folder differ: {first} and {again}"
    );
    t.run("kubectl bundle build bundle-webhook --to bundle-webhook-oci")
        .await?;
    t.run("kubectl bundle inspect shop-1.0.0").await?;
    Ok(())
}

async fn ship(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    let pinned = t
        .run(&format!(
            "kubectl bundle push shop-1.0.0 {registry}/shop:1.0.0"
        ))
        .await?;
    Teller::pinned(&pinned)?;
    t.say("The same content again is a no-op that says so:");
    t.run(&format!(
        "kubectl bundle push shop-1.0.0 {registry}/shop:1.0.0"
    ))
    .await?;
    t.run(&format!(
        "kubectl bundle push bundle-webhook-oci {registry}/bundle-webhook:0.1.0"
    ))
    .await?;
    t.say("A key pair in cosign's format; its password comes from BUNDLE_PASSWORD here, and from a prompt otherwise.");
    t.run("kubectl bundle keys generate --output-key-prefix release")
        .await?;
    t.run(&format!(
        "kubectl bundle sign --key release.key {registry}/shop:1.0.0"
    ))
    .await?;
    t.run(&format!(
        "kubectl bundle sign --key release.key {registry}/bundle-webhook:0.1.0"
    ))
    .await?;
    t.run(&format!(
        "kubectl bundle verify --key release.pub {registry}/shop:1.0.0"
    ))
    .await?;
    Ok(())
}

async fn govern(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    let key = t.quietly("cat release.pub").await?;
    let key = format!("        {}\n", key.trim_end().replace('\n', "\n        "));
    t.write(
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
    t.run("cat governance.yaml").await?;
    t.run("kubectl apply -f governance.yaml").await?;
    Ok(())
}

async fn install(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    t.run(&format!(
        "kubectl bundle deploy shop {registry}/shop:1.0.0 --class production"
    ))
    .await?;
    t.run("kubectl wait --for=condition=Installed bundledeployment/shop --timeout=60s")
        .await?;
    t.run("kubectl get bundles,bundledeployments").await?;
    let objects = t
        .run("kubectl get bundledeployment shop -o jsonpath='{.status.installed.objects} objects of version {.status.installed.version}, for {.status.installed.requestedBy}{\"\\n\"}'")
        .await?;
    let count: usize = objects
        .split(' ')
        .next()
        .unwrap_or_default()
        .parse()
        .with_context(|| format!("no count in `{objects}`"))?;
    ensure!(count >= 200, "only {count} objects");
    t.say("Custom resources came in the same bundle as their CustomResourceDefinitions:");
    t.run("kubectl get crds -l core.rukpak.io/owner-name=shop")
        .await?;
    t.run("kubectl get all,configmaps,networkpolicies -A -l core.rukpak.io/owner-name=shop --no-headers | wc -l").await?;
    Ok(())
}

async fn others(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    t.say("The objects of the project are there already and nobody's: adopting them must be asked for.");
    t.run(&format!(
        "kubectl bundle deploy bundle-webhook {registry}/bundle-webhook:0.1.0 --class production --collision Adopt --wait"
    ))
    .await?;
    t.run("kubectl get deployments,services,serviceaccounts -n bundle-system")
        .await?;
    bundles::greeting(&t.folder().join("greeting"), "1.0.0", None)?;
    t.run("kubectl bundle build greeting --to greeting-oci")
        .await?;
    t.run(&format!(
        "kubectl bundle push greeting-oci {registry}/greeting:latest"
    ))
    .await?;
    t.write(
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
    t.run("cat rukpak.yaml").await?;
    t.run("kubectl apply -f rukpak.yaml").await?;
    t.run("kubectl wait --for=condition=Installed bundledeployment/greeting --timeout=60s")
        .await?;
    t.run("kubectl get bundles -l app=greeting").await?;
    Ok(())
}

async fn drift(t: &mut Teller<'_>) -> Result<()> {
    let config = t
        .quietly("kubectl get configmaps -A -l core.rukpak.io/owner-name=shop -o jsonpath='{.items[0].metadata.namespace} {.items[0].metadata.name}'")
        .await?;
    let (namespace, name) = config
        .split_once(' ')
        .context("the shop has no ConfigMap")?;
    let deployment = t
        .quietly("kubectl get deployments -A -l core.rukpak.io/owner-name=shop -o jsonpath='{.items[0].metadata.namespace} {.items[0].metadata.name}'")
        .await?;
    let (deployment_namespace, deployment) = deployment
        .split_once(' ')
        .context("the shop has no Deployment")?;

    t.run(&format!("kubectl delete configmap {name} -n {namespace}"))
        .await?;
    t.sees(
        "the deleted ConfigMap is back",
        &format!("kubectl get configmap {name} -n {namespace} -o name"),
        |out| out.contains("configmap/"),
    )
    .await?;

    t.run(&format!("kubectl set image deployment/{deployment} -n {deployment_namespace} '*=registry.example.com/evil:1'")).await?;
    t.sees(
            "the changed image is what the bundle says again",
            &format!("kubectl get deployment {deployment} -n {deployment_namespace} -o jsonpath='{{.spec.template.spec.containers[*].image}}'"),
            |out| !out.contains("evil"),
        )
        .await?;

    t.say("What belongs to others is left alone:");
    t.run(&format!("kubectl annotate deployment {deployment} -n {deployment_namespace} example.com/note='call Ana first'")).await?;
    t.run(&format!(
        "kubectl rollout restart deployment/{deployment} -n {deployment_namespace}"
    ))
    .await?;
    t.run(&format!("kubectl delete configmap {name} -n {namespace}"))
        .await?;
    t.sees(
        "another repair has passed",
        &format!("kubectl get configmap {name} -n {namespace} -o name"),
        |out| out.contains("configmap/"),
    )
    .await?;
    let kept = t
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

async fn pivot(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    let names = "kubectl get configmaps,services,cronjobs -A -l core.rukpak.io/owner-name=shop -o name | sort";
    let before = t.quietly(names).await?;
    bundles::shop(&t.folder().join("shop-next"), "1.1.0")?;
    t.run("kubectl bundle build shop-next --to shop-1.1.0")
        .await?;
    t.run(&format!(
        "kubectl bundle push shop-1.1.0 {registry}/shop:1.1.0"
    ))
    .await?;
    t.run(&format!(
        "kubectl bundle sign --key release.key {registry}/shop:1.1.0"
    ))
    .await?;
    t.run(&format!(
        "kubectl bundle deploy shop {registry}/shop:1.1.0 --class production --wait"
    ))
    .await?;
    t.until(
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
    t.sees("what version 1.1.0 dropped is gone", names, |after| {
        after.lines().count() > 0
            && was
                .lines()
                .any(|name| !after.lines().any(|other| other == name))
    })
    .await?;
    let after = t.quietly(names).await?;
    t.say(&format!("{} objects of 1.0.0 are pruned.", dropped(&after)));
    t.run("kubectl get bundles -l core.rukpak.io/owner-name=shop")
        .await?;
    Ok(())
}

async fn refusals(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    t.say("A Bundle is what it was when it was admitted:");
    let bundle = t
        .quietly("kubectl get bundledeployment shop -o jsonpath='{.status.activeBundle}'")
        .await?;
    t.refused(
        &format!("kubectl patch bundle {bundle} --type=merge -p '{{\"spec\":{{\"source\":{{\"image\":{{\"ref\":\"{registry}/other:1\"}}}}}}}}'"),
        &["Error from server (bundle.spec is immutable): admission webhook \"vbundles.core.rukpak.io\" denied the request: bundle.spec is immutable"],
    )
    .await?;

    t.say("Not signed:");
    bundles::greeting(&t.folder().join("unsigned"), "2.0.0", None)?;
    t.run("kubectl bundle build unsigned --to unsigned-oci")
        .await?;
    t.run(&format!(
        "kubectl bundle push unsigned-oci {registry}/unsigned:2.0.0"
    ))
    .await?;
    t.refused(
        &format!("kubectl bundle deploy unsigned {registry}/unsigned:2.0.0 --class production"),
        &["denied the request", "BUNDLE-TRUST-"],
    )
    .await?;

    t.say("Signed, but by another key:");
    bundles::shop(&t.folder().join("shop-forged"), "1.2.0")?;
    t.run("kubectl bundle build shop-forged --to shop-forged-oci")
        .await?;
    t.run(&format!(
        "kubectl bundle push shop-forged-oci {registry}/shop:1.2.0"
    ))
    .await?;
    t.run("kubectl bundle keys generate --output-key-prefix mallory")
        .await?;
    t.run(&format!(
        "kubectl bundle sign --key mallory.key {registry}/shop:1.2.0"
    ))
    .await?;
    t.refused(
        &format!("kubectl bundle verify --key release.pub {registry}/shop:1.2.0"),
        &["BUNDLE-TRUST-"],
    )
    .await?;
    t.refused(
        &format!("kubectl bundle deploy shop {registry}/shop:1.2.0 --class production"),
        &["denied the request", "BUNDLE-TRUST-"],
    )
    .await?;

    t.say("Signed, but older than what is installed:");
    t.run(&format!(
        "kubectl bundle deploy shop {registry}/shop:1.0.0 --class production"
    ))
    .await?;
    t.until(
        "going back is refused, and 1.1.0 stays",
        "kubectl get bundledeployment shop -o jsonpath='{.status.installed.version} stays: {range .status.conditions[?(@.type==\"Ready\")]}{.message}{\"\\n\"}{end}'",
        |out| out.starts_with("1.1.0 stays") && out.contains("forbids downgrades"),
    )
    .await?;
    t.run(&format!(
        "kubectl bundle deploy shop {registry}/shop:1.1.0 --class production --wait"
    ))
    .await?;

    t.say("A user without the verb `use` on the class; a binding alone lets her in:");
    t.run("kubectl create clusterrole bundle-author --verb=get,list,create,patch --resource=bundledeployments.core.rukpak.io").await?;
    t.run("kubectl create clusterrolebinding ana-is-author --clusterrole=bundle-author --user=ana")
        .await?;
    let hers = format!(
        "kubectl bundle deploy hers {registry}/greeting:latest --class core-rukpak-io-plain --dry-run=server --as=ana"
    );
    t.refused(
        &hers,
        &["denied the request", "ana", "use", "core-rukpak-io-plain"],
    )
    .await?;
    t.write(
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
    t.run("cat use-plain.yaml").await?;
    t.run("kubectl apply -f use-plain.yaml").await?;
    t.run("kubectl create clusterrolebinding ana-uses-plain --clusterrole=use-plain --user=ana")
        .await?;
    t.sees("the binding lets her in", &hers, |_| true).await?;

    t.say("Made for other Kubernetes versions:");
    bundles::greeting(&t.folder().join("old"), "3.0.0", Some(">=1.22 <1.25"))?;
    t.run("kubectl bundle build old --to old-oci").await?;
    t.run(&format!("kubectl bundle push old-oci {registry}/old:3.0.0"))
        .await?;
    t.refused(
        &format!("kubectl bundle deploy old {registry}/old:3.0.0"),
        &["denied the request", ">=1.22 <1.25", "this server is v1."],
    )
    .await?;
    t.say("The same findings, before anything is sent:");
    t.write(
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
    t.refused("kubectl bundle check -f old.yaml", &[">=1.22 <1.25"])
        .await?;
    Ok(())
}

async fn moved_tag(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    let installed =
        "kubectl get bundledeployment greeting -o jsonpath='{.status.installed.digest}'";
    let before = t.quietly(installed).await?;
    bundles::greeting(&t.folder().join("moved"), "1.0.1", None)?;
    t.run("kubectl bundle build moved --to moved-oci").await?;
    t.refused(
        &format!("kubectl bundle push moved-oci {registry}/greeting:latest"),
        &["BUNDLE-REGISTRY-"],
    )
    .await?;
    t.run(&format!(
        "kubectl bundle push moved-oci {registry}/greeting:latest --overwrite-tag"
    ))
    .await?;
    t.until(
        "the move is noticed and said",
        "kubectl get bundles -l app=greeting -o jsonpath='{range .items[*].status.conditions[?(@.type==\"SourceMoved\")]}{.status}: {.message}{\"\\n\"}{end}'",
        |out| out.starts_with("True"),
    )
    .await?;
    let after = t.quietly(installed).await?;
    ensure!(
        before == after,
        "a moved tag changed what is installed: {before} to {after}"
    );
    t.say("What is installed has not changed.");
    Ok(())
}

async fn stampless(t: &mut Teller<'_>) -> Result<()> {
    let registry = registry(t)?;
    t.say("Somebody takes admission away for a while, and writes:");
    t.webhook.stop().await?;
    t.run(
        "kubectl delete validatingwebhookconfiguration,mutatingwebhookconfiguration bundle-webhook",
    )
    .await?;
    t.write(
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
    t.run("kubectl apply -f sneaked.yaml").await?;
    t.webhook.register().await?;
    t.webhook.start().await?;
    t.webhook.wait_for_admission().await?;
    t.say("The webhook is back:");
    t.until(
        "it is reported, and not installed",
        "kubectl get bundledeployment sneaked -o jsonpath='{range .status.conditions[?(@.type==\"Installed\")]}{.status} {.reason}: {.message}{\"\\n\"}{end}'",
        |out| out.starts_with("False") || out.starts_with("Unknown"),
    )
    .await?;
    t.run("kubectl delete bundledeployment sneaked --timeout=60s")
        .await?;
    t.say("For a few seconds, what it finds installed is not removed by a deletion, which may be older than its return:");
    t.until(
        "deletions are taken again",
        "kubectl delete bundledeployment shop --dry-run=server",
        |_| true,
    )
    .await?;
    Ok(())
}

async fn clean_up(t: &mut Teller<'_>) -> Result<()> {
    t.run("kubectl delete bundledeployment shop greeting --timeout=60s")
        .await?;
    t.until(
        "nothing of the shop is left",
        "kubectl get all,configmaps,secrets,networkpolicies,crds,roles -A -l 'core.rukpak.io/owner-name in (shop, greeting)' -o name | wc -l",
        |out| out.trim() == "0",
    )
    .await?;
    t.run("kubectl get bundles,bundledeployments").await?;
    Ok(())
}
