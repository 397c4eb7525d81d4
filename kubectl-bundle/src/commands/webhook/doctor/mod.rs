//! `doctor`: checks the plugin, the cluster and the installation concurrently, and prints the
//! results. The rules are in `bundle_core::doctor`.

mod arguments;
mod connection;
mod installation;
mod observer;
mod permissions;
mod programs;
mod registrations;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use bundle_core::doctor::{self, CheckResult};
use bundle_core::reference::Reference;
use bundle_oci::registry::{RegistryError, Repository};
use jiff::Timestamp;

use super::install::manifests;
use crate::cluster::KubeSettings;
use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;
use observer::Observer;
use registrations::Registrations;

/// Settings of `doctor`.
pub(crate) struct Doctor {
    /// The cluster.
    pub(crate) cluster: KubeSettings,
    /// Reference or repository to read.
    pub(crate) reference: Option<RegistryProbe>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
    /// The system namespace. `None` if the user passed no namespace.
    pub(crate) namespace: Option<String>,
    /// Deadline of each check.
    pub(crate) deadline: Duration,
    /// Folders of PATH.
    pub(crate) path: Vec<PathBuf>,
    /// Path of this program.
    pub(crate) program: PathBuf,
    /// Output format.
    pub(crate) format: Option<Format>,
}

/// Content of a registry that the check reads.
#[derive(Debug, Clone)]
pub(crate) enum RegistryProbe {
    /// The manifest of this reference.
    Reference(Reference),
    /// The tags of this repository.
    Repository(Repository),
}

impl Doctor {
    /// Runs all checks and prints their results.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let results = {
            let _progress = ui.progress("checking");
            let (plugin, cluster, registry) =
                tokio::join!(self.plugin(), self.cluster(), self.registry());
            let mut results = vec![plugin];
            results.extend(cluster?);
            results.extend(registry);
            results
        };
        report::print(ui, self.format, &results)?;
        match doctor::outcome(&results) {
            None => Ok(()),
            Some(outcome) => Err(Failure::Reported(outcome.into())),
        }
    }

    async fn plugin(&self) -> CheckResult {
        let (path, program) = (self.path.clone(), self.program.clone());
        let find = move || programs::find(&path, &program);
        match observer::run_with_deadline(self.deadline, find).await {
            Some(found) => doctor::client::plugin(env!("CARGO_PKG_VERSION"), &found),
            None => {
                CheckResult::no_response("plugin", "PATH", observer::timeout_message(self.deadline))
            }
        }
    }

    /// Returns the results that need a connection.
    async fn cluster(&self) -> Outcome<Vec<CheckResult>> {
        let not_checked =
            || CheckResult::skipped("cluster", "", "not checked without a connection");
        let observer = match Observer::connect(self.cluster.clone(), self.deadline).await {
            Ok(observer) => observer,
            Err(result) => return Ok(vec![result, not_checked()]),
        };
        let (mut results, is_connected) = connection::check(&observer).await;
        if !is_connected {
            results.push(not_checked());
            return Ok(results);
        }
        let shipped = manifests::all(manifests::DEFAULT_SYSTEM_NAMESPACE)?;
        let registrations = Registrations::read(&observer, &shipped).await;
        let namespace = self
            .namespace
            .clone()
            .or_else(|| registrations.namespace())
            .unwrap_or_else(|| manifests::DEFAULT_SYSTEM_NAMESPACE.to_owned());
        let (caller, definitions, review, installation) = tokio::join!(
            permissions::caller(&observer, &namespace),
            installation::definitions(&observer, &shipped),
            registrations::review(&observer),
            installed(&observer, &registrations, &namespace),
        );
        results.extend(caller);
        results.extend(definitions);
        results.extend(installation?);
        results.push(review);
        Ok(results)
    }

    /// Returns the result of reading from the registry, if a reference was given.
    async fn registry(&self) -> Option<CheckResult> {
        const CHECK: &str = "registry";
        let probe = self.reference.as_ref()?;
        let client = match registry::client(&self.registry) {
            Ok(client) => client,
            Err(failure) => return Some(observer::result_of(CHECK, failure)),
        };
        let subject = match probe {
            RegistryProbe::Reference(reference) => reference.to_string(),
            RegistryProbe::Repository(repository) => repository.to_string(),
        };
        let read = async {
            match probe {
                RegistryProbe::Reference(reference) => {
                    let digest = client.resolve(reference).await?;
                    Ok::<_, RegistryError>(format!("readable, {digest}"))
                }
                RegistryProbe::Repository(repository) => {
                    let tags = client.tags(repository).await?;
                    Ok(format!("readable, {} tags", tags.len()))
                }
            }
        };
        Some(match tokio::time::timeout(self.deadline, read).await {
            Ok(Ok(message)) => CheckResult::ok(CHECK, subject, message),
            Ok(Err(error)) => CheckResult::of(CHECK, error.finding()),
            Err(_) => {
                CheckResult::no_response(CHECK, subject, observer::timeout_message(self.deadline))
            }
        })
    }
}

/// Returns the day of a time in Unix seconds.
fn shown_date(seconds: i64) -> String {
    match Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d").to_string(),
        Err(_) => format!("second {seconds}"),
    }
}

/// Returns the results of the installation in the system namespace `namespace`.
async fn installed(
    observer: &Observer,
    registrations: &Registrations,
    namespace: &str,
) -> Outcome<Vec<CheckResult>> {
    let manifests = manifests::all(namespace)?;
    let (pods, endpoints, permissions, policies) = tokio::join!(
        installation::pods(observer, namespace),
        installation::endpoints(observer, namespace, registrations.are_called_by_url()),
        permissions::pod(observer, &manifests, namespace),
        installation::policies(observer, namespace),
    );
    let mut results = pods;
    results.push(endpoints);
    results.extend(permissions);
    results.extend(policies);
    results.extend(registrations.check(namespace));
    Ok(results)
}
