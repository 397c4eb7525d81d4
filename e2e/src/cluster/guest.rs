//! Use of an existing cluster: its objects are not changed, and objects of the tests are removed at
//! the end, admission registrations first.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value;

use super::Cluster;
use crate::command::Output;
use crate::tools::Tool;
use crate::webhook::{self, NAMESPACE, Webhook};

/// Label of the Namespace that tests create. A later run uses it to distinguish leftovers of tests
/// from a real installation.
const MARK: &str = "e2e.bundle.example.com/guest";
/// Command that deletes the admission registrations. They have the product's own names.
const REGISTRATIONS: [&str; 3] = [
    "delete",
    "validatingwebhookconfigurations,mutatingwebhookconfigurations",
    "bundle-webhook",
];
/// Our kinds; those that generate others come first.
const KINDS: [&str; 3] = ["bundledeployments", "bundles", "bundleapprovals"];

/// Objects of the tests in an existing cluster.
pub(super) struct Guest {
    context: String,
    kubectl: PathBuf,
    entered: AtomicBool,
    reserved: Mutex<Vec<String>>,
}

impl Guest {
    pub(super) fn new(context: &str, kubectl: &Path) -> Self {
        Self {
            context: context.to_owned(),
            kubectl: kubectl.to_owned(),
            entered: AtomicBool::new(false),
            reserved: Mutex::new(Vec::new()),
        }
    }

    fn reserved(&self) -> Vec<String> {
        self.reserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl fmt::Display for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the cluster of context `{}`", self.context)
    }
}

impl Cluster {
    /// Returns `true` if the control plane is an existing one, which must be left unchanged.
    pub fn is_guest(&self) -> bool {
        self.guest.is_some()
    }

    /// Reserves objects that will be created, as kubectl's `TYPE/NAME`. In an existing cluster it
    /// is an error if one exists, and [`Cluster::leave`] deletes them. In our own cluster this does
    /// nothing.
    pub async fn reserve(&self, names: &[&str]) -> Result<()> {
        let Some(guest) = &self.guest else {
            return Ok(());
        };
        self.clear_leftovers(names).await?;
        let mut there = Vec::new();
        for name in names {
            there.extend(self.present(&["get", name]).await?);
        }
        refuse(guest, &there)?;
        guest
            .reserved
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(names.iter().map(ToString::to_string));
        Ok(())
    }

    /// Prepares an existing cluster for the product's manifests: none of these objects may exist.
    /// The admission registrations are removed at the end of this process, even if it is killed.
    pub(crate) async fn enter(&self, manifests: &mut [Value]) -> Result<()> {
        let Some(guest) = &self.guest else {
            return Ok(());
        };
        for object in manifests.iter_mut() {
            if object["kind"] == "Namespace" {
                object["metadata"]["labels"][MARK] = Value::String("true".to_owned());
            }
        }
        if guest.entered.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.clear_leftovers(&[]).await?;
        let mut there = Vec::new();
        for folder in ["manifests", "admission"] {
            let folder = webhook::deploy_folder().join(folder).display().to_string();
            there.extend(self.present(&["get", "-f", &folder]).await?);
        }
        refuse(guest, &there)?;
        let words = [
            &guest.kubectl.display().to_string(),
            "--kubeconfig",
            &self.admin.display().to_string(),
        ];
        let line: Vec<_> = words
            .into_iter()
            .chain(REGISTRATIONS)
            .chain(["--ignore-not-found", "--request-timeout=10s"])
            .map(|word| format!("'{}'", word.replace('\'', r"'\''")))
            .collect();
        self.janitor.at_the_end(&line.join(" "))?;
        guest.entered.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Removes all objects of the tests from an existing cluster: admission registrations first,
    /// then installed content while the webhook still runs, then the product itself. Continues
    /// after a failure, and reports all failures. In our own cluster this does nothing.
    pub async fn leave(&self, webhook: Option<Webhook>) -> Result<()> {
        match &self.guest {
            Some(guest) if guest.entered.swap(false, Ordering::Relaxed) => {
                self.clear(webhook, &guest.reserved()).await?;
                self.janitor.at_the_end(":")
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
            // The one that has adopted the product's own objects would saw off the branch that it sits on.
            let own = "jsonpath={.metadata.labels.core\\.rukpak\\.io/owner-name}";
            let own = note(
                self.ask(["get", "namespace", NAMESPACE, "-o", own])
                    .await
                    .and_then(Output::success),
            );
            let all = note(
                self.ask(["get", KINDS[0], "-o", "name"])
                    .await
                    .and_then(Output::success),
            );
            let others: Vec<&str> = all
                .lines()
                .filter(|name| name.split('/').next_back() != Some(own.as_str()))
                .collect();
            // Before the registrations go: a deletion that nobody is asked about is not carried out.
            if !others.is_empty() && webhook.is_running() {
                let line = ["delete", "--timeout=60s"].into_iter().chain(others);
                note(self.remove(line).await);
            }
            drop(webhook);
        }
        note(self.remove(REGISTRATIONS).await);
        for kind in KINDS {
            // Where the CRDs have not been applied yet there is nothing to find.
            let found = self.ask(["get", kind, "-o", "name"]).await?;
            for name in found.stdout.lines() {
                // Nobody is there any more to do what the finalizer waits for.
                let free = r#"{"metadata":{"finalizers":null}}"#;
                note(
                    self.ask(["patch", name, "--type=merge", "-p", free])
                        .await
                        .and_then(Output::success),
                );
                note(self.remove(["delete", name, "--timeout=30s"]).await);
            }
        }
        for name in reserved {
            note(self.remove(["delete", name, "--timeout=60s"]).await);
        }
        let manifests = webhook::deploy_folder()
            .join("manifests")
            .display()
            .to_string();
        note(
            self.remove(["delete", "-f", &manifests, "--timeout=60s"])
                .await,
        );
        if failures.is_empty() {
            return Ok(());
        }
        bail!(
            "not everything could be taken away:\n{}",
            failures.join("\n")
        )
    }

    /// Deletes objects with our label that a killed run has left.
    async fn clear_leftovers(&self, names: &[&str]) -> Result<()> {
        let selector = format!("{MARK}=true");
        let marked = self.ask(["get", "namespaces", "-l", &selector, "-o", "name"]);
        if marked.await?.success()?.is_empty() {
            return Ok(());
        }
        eprintln!("e2e: taking away what a run that was killed has left in the cluster");
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        self.clear(None, &names).await
    }

    /// Returns the names of those objects that exist; none for a kind that the server does not
    /// know.
    async fn present(&self, get: &[&str]) -> Result<Vec<String>> {
        let line = get.iter().chain(&["--ignore-not-found", "-o", "name"]);
        let found = self.ask(line).await?;
        let unknown = |line: &str| {
            line.contains("no matches for kind")
                || line.contains("doesn't have a resource type")
                || line.contains("ensure CRDs are installed first")
        };
        if let Some(line) = found.stderr.lines().find(|line| !unknown(line)) {
            bail!(
                "cannot tell what is there already: {}",
                line.trim_start_matches("error: ")
            );
        }
        Ok(found.stdout.lines().map(ToOwned::to_owned).collect())
    }

    /// Deletes objects. A kind that the server does not know counts as deleted.
    async fn remove<'a>(&self, line: impl IntoIterator<Item = &'a str>) -> Result<String> {
        let line = line.into_iter().chain(["--ignore-not-found"]);
        let output = self.ask(line).await?;
        if output.stderr.contains("no matches for kind")
            || output.stderr.contains("doesn't have a resource type")
        {
            return Ok(output.stdout);
        }
        output.success()
    }

    async fn ask<S: AsRef<std::ffi::OsStr>>(
        &self,
        line: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let command = self.tool(Tool::Kubectl).await?;
        command
            .args(line)
            .output()
            .await
            .context("cannot ask the cluster")
    }
}

fn refuse(guest: &Guest, there: &[String]) -> Result<()> {
    if there.is_empty() {
        return Ok(());
    }
    Err(anyhow!(
        "{guest} has objects already that would have to be made there, and that are somebody's:\n  {}\nhint: use a cluster without bundle-webhook and RukPak, or leave out the context: then a cluster of its own is started",
        there.join("\n  ")
    ))
}
