//! The webhook in an existing cluster. Existing objects of the cluster are not changed. Objects of
//! the tests are removed after the tests.

use std::sync::atomic::Ordering;

use anyhow::{Result, anyhow, bail};
use serde_json::Value;

use super::{NAMESPACE, Webhook, deploy_folder};
use crate::cluster::{Cluster, ExistingCluster};
use crate::host::command::Output;

/// Label of the Namespace that tests create. With this label, a later run distinguishes leftovers
/// of tests from a real installation.
const TEST_LABEL: &str = "e2e.bundle.example.com/test-objects";
/// Arguments of kubectl that delete the admission registrations of the product.
const REGISTRATIONS: [&str; 3] = [
    "delete",
    "validatingwebhookconfigurations,mutatingwebhookconfigurations",
    "bundle-webhook",
];
/// Kinds of this project. Kinds whose objects generate other objects are first.
const KINDS: [&str; 3] = ["bundledeployments", "bundles", "bundleapprovals"];

impl Cluster {
    /// Reserves objects that the caller will create, as kubectl's `TYPE/NAME`. In an existing
    /// cluster, returns an error if one of these objects exists. [`Cluster::leave`] deletes the
    /// created objects. In other clusters this function does nothing.
    pub async fn reserve(&self, names: &[&str]) -> Result<()> {
        let Some(existing) = self.existing() else {
            return Ok(());
        };
        self.clear_leftovers(names).await?;
        let mut found = Vec::new();
        for name in names {
            found.extend(self.present(&["get", name]).await?);
        }
        check_absent(existing, &found)?;
        existing.reserve(names);
        Ok(())
    }

    /// Prepares an existing cluster for the product's manifests: returns an error if one of these
    /// objects exists. The admission registrations are removed at the end of this process, even if
    /// the process is killed.
    pub(super) async fn prepare_existing(&self, manifests: &mut [Value]) -> Result<()> {
        let Some(existing) = self.existing() else {
            return Ok(());
        };
        for object in manifests.iter_mut() {
            if object["kind"] == "Namespace" {
                object["metadata"]["labels"][TEST_LABEL] = Value::String("true".to_owned());
            }
        }
        if existing.has_webhook.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.clear_leftovers(&[]).await?;
        let mut found = Vec::new();
        for folder in ["manifests", "admission"] {
            let folder = deploy_folder().join(folder).display().to_string();
            found.extend(self.present(&["get", "-f", &folder]).await?);
        }
        check_absent(existing, &found)?;
        let words = [
            &existing.kubectl.display().to_string(),
            "--kubeconfig",
            &self.kubeconfig().display().to_string(),
        ];
        let line: Vec<_> = words
            .into_iter()
            .chain(REGISTRATIONS)
            .chain(["--ignore-not-found", "--request-timeout=10s"])
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        self.janitor().at_the_end(&line.join(" "))?;
        existing.has_webhook.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes all objects of the tests from an existing cluster: first the BundleDeployments while
    /// the webhook still runs, then the admission registrations, then the product itself. Continues
    /// after a failure, and reports all failures. In other clusters this function does nothing.
    pub async fn leave(&self, webhook: Option<Webhook>) -> Result<()> {
        match self.existing() {
            Some(existing) if existing.has_webhook.swap(false, Ordering::Relaxed) => {
                self.clear(webhook, &existing.reserved()).await?;
                self.janitor().at_the_end(":")
            }
            _ => Ok(()),
        }
    }

    async fn clear(&self, webhook: Option<Webhook>, reserved: &[String]) -> Result<()> {
        let mut failures = Vec::new();
        let mut note = |result: Result<String>| match result {
            Ok(text) => text,
            Err(error) => {
                failures.push(format!("{error:#}"));
                String::new()
            }
        };
        if let Some(mut webhook) = webhook {
            // A BundleDeployment can have adopted the product's own objects. This BundleDeployment
            // is deleted only after the registrations.
            let own = "jsonpath={.metadata.labels.core\\.rukpak\\.io/owner-name}";
            let own = note(
                self.kubectl(["get", "namespace", NAMESPACE, "-o", own])
                    .await
                    .and_then(Output::success),
            );
            let all = note(
                self.kubectl(["get", KINDS[0], "-o", "name"])
                    .await
                    .and_then(Output::success),
            );
            let others: Vec<&str> = all
                .lines()
                .filter(|name| name.split('/').next_back() != Some(own.as_str()))
                .collect();
            // BundleDeployments are deleted before the registrations, because the webhook removes
            // installed objects only if it has reviewed the deletion.
            if !others.is_empty() && webhook.is_running() {
                let line = ["delete", "--timeout=60s"].into_iter().chain(others);
                note(self.remove(line).await);
            }
            drop(webhook);
        }
        note(self.remove(REGISTRATIONS).await);
        for kind in KINDS {
            // If the cluster does not serve the kind, the output is empty.
            let found = self.kubectl(["get", kind, "-o", "name"]).await?;
            for name in found.stdout.lines() {
                // The webhook no longer runs, so the finalizer of the webhook is removed here.
                let free = r#"{"metadata":{"finalizers":null}}"#;
                note(
                    self.kubectl(["patch", name, "--type=merge", "-p", free])
                        .await
                        .and_then(Output::success),
                );
                note(self.remove(["delete", name, "--timeout=30s"]).await);
            }
        }
        for name in reserved {
            note(self.remove(["delete", name, "--timeout=60s"]).await);
        }
        let manifests = deploy_folder().join("manifests").display().to_string();
        note(
            self.remove(["delete", "-f", &manifests, "--timeout=60s"])
                .await,
        );
        if failures.is_empty() {
            return Ok(());
        }
        bail!("not all objects could be removed:\n{}", failures.join("\n"))
    }

    /// Deletes the objects of an earlier run that was killed, if a Namespace with the label of the
    /// tests exists.
    async fn clear_leftovers(&self, names: &[&str]) -> Result<()> {
        let selector = format!("{TEST_LABEL}=true");
        let marked = self.kubectl(["get", "namespaces", "-l", &selector, "-o", "name"]);
        if marked.await?.success()?.is_empty() {
            return Ok(());
        }
        eprintln!("e2e: removing the objects that a killed run has left in the cluster");
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        self.clear(None, &names).await
    }

    /// Returns the names of the objects that exist. For a kind that the server does not serve, the
    /// list is empty.
    async fn present(&self, get: &[&str]) -> Result<Vec<String>> {
        let line = get.iter().chain(&["--ignore-not-found", "-o", "name"]);
        let found = self.kubectl(line).await?;
        let unknown = |line: &str| {
            line.contains("no matches for kind")
                || line.contains("doesn't have a resource type")
                || line.contains("ensure CRDs are installed first")
        };
        if let Some(line) = found.stderr.lines().find(|line| !unknown(line)) {
            bail!(
                "cannot list existing objects: {}",
                line.trim_start_matches("error: ")
            );
        }
        Ok(found.stdout.lines().map(ToOwned::to_owned).collect())
    }

    /// Deletes objects. If the API server does not serve the kind, this is not an error.
    async fn remove<'a>(&self, line: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let line = line.into_iter().chain(["--ignore-not-found"]);
        let output = self.kubectl(line).await?;
        if output.stderr.contains("no matches for kind")
            || output.stderr.contains("doesn't have a resource type")
        {
            return Ok(output.stdout);
        }
        output.success()
    }
}

/// Returns an error if one of the objects exists.
fn check_absent(existing: &ExistingCluster, found: &[String]) -> Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "{existing} has objects that the tests would create:\n  {}\nhint: use a cluster without bundle-webhook and RukPak, or omit the context to start a new cluster",
        found.join("\n  ")
    ))
}
