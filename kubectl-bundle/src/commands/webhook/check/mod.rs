//! `check`: runs the admission review for objects in files, with the data that the user has
//! permission to read.

mod arguments;
mod content;
mod documents;
mod lookup;
mod policy_references;
mod report;
mod unavailable;

use std::path::PathBuf;

use bundle_cluster::review;
use bundle_core::diagnostic::{Finding, Findings, Outcome as Meaning};
use bundle_core::review::{Kind, ReviewFacts, StampState, Subject, Verdict, judge, needs};
use serde_json::Value;

use crate::cluster::KubeSettings;
use crate::failure::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::registry::RegistrySettings;
use crate::ui::Ui;
use crate::ui::format::Format;

use content::ReviewedImage;
use documents::{ReviewKind, ReviewedObject};
use lookup::ClusterFacts;
use report::{ObjectReport, ReviewResult};

pub(crate) use arguments::Arguments;

/// Settings of `check`.
pub(crate) struct Check {
    /// Files to check.
    pub(crate) files: Vec<PathBuf>,
    /// Settings of the cluster and registries; `None` means that no cluster or registry is used.
    pub(crate) online: Option<OnlineSettings>,
    /// Namespace in which bundle-webhook runs.
    pub(crate) system_namespace: String,
    /// Output format.
    pub(crate) format: Option<Format>,
}

/// Settings of the cluster and of the registries from which the review reads data.
pub(crate) struct OnlineSettings {
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Check {
    /// Reads the files, looks up the data for the review, reviews the objects, and prints every
    /// finding.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let found = documents::read(&self.files)?;
        let lookup = match &self.online {
            Some(online) => {
                let _progress = ui.progress("reading from the cluster");
                Some(ClusterFacts::start(online, &self.system_namespace).await?)
            }
            None => None,
        };
        let mut reports = Vec::new();
        for one in &found {
            reports.push(match one.review {
                ReviewKind::Reviewed(kind) => self.review(ui, lookup.as_ref(), one, kind).await,
                ReviewKind::Class => ObjectReport::new(one, documents::problems(one), Vec::new()),
                ReviewKind::Policy => self.policy(lookup.as_ref(), one).await,
                ReviewKind::Other => ObjectReport::not_reviewed(one),
            });
        }
        let exit = report::print(ui, self.format, &reports)?;
        if exit == Exit::Done {
            Ok(())
        } else {
            Err(Failure::Reported(exit))
        }
    }

    /// Checks a policy. If a key or trust root cannot be read, the result is "unknown".
    async fn policy(&self, lookup: Option<&ClusterFacts>, found: &ReviewedObject) -> ObjectReport {
        let policy = documents::policy(found);
        let now = jiff::Timestamp::now();
        let Some(lookup) = lookup else {
            let (policy, unchecked) =
                policy_references::offline_policy(&self.system_namespace, policy);
            let findings = offline_findings(&bundle_trust::proof::problems(&policy, now));
            let answer = if findings.has_errors() {
                ReviewResult::Rejected
            } else {
                ReviewResult::NotVerified
            };
            return ObjectReport::new(found, findings, unchecked).with_verdict(answer);
        };
        let policy = lookup.resolve_references(policy).await;
        let problems = bundle_trust::proof::problems(&policy, now);
        ObjectReport::new(found, problems, Vec::new())
    }

    async fn review(
        &self,
        ui: &mut Ui,
        lookup: Option<&ClusterFacts>,
        found: &ReviewedObject,
        kind: Kind,
    ) -> ObjectReport {
        let name = found.name();
        let mut subject = Subject {
            kind,
            name: &name,
            old: None,
            new: &found.value,
            // Only bundle-webhook can verify a stamp annotation, so the object is checked like an
            // object without a stamp.
            stamp_state: StampState::Unstamped,
            admits: true,
            own: false,
        };
        let Some(lookup) = lookup else {
            return offline(found, &subject);
        };
        let _progress = ui.progress(&format!("looking up facts for {}", found.title()));
        let mut unchecked = Vec::new();
        let old: Option<Value> = lookup
            .existing(kind, &name)
            .await
            .unwrap_or_else(|finding| {
                // If the user has no permission to read the object, it is reviewed as a new object.
                unchecked.push(finding.message);
                None
            });
        subject.old = old.as_ref();
        let image = ReviewedImage::new(lookup);
        let verdict = review::verdict(lookup, &image, &subject, &lookup.requester).await;
        let content = Box::pin(image.content(&subject, &verdict)).await;
        unchecked.extend(content.unchecked);
        let report = ObjectReport::new(found, verdict.findings().clone(), unchecked);
        let answer = match verdict {
            Verdict::Admit { .. } => ReviewResult::Admitted,
            Verdict::Refuse(_) => ReviewResult::Rejected,
            Verdict::Unknown(_) => ReviewResult::Unknown,
        };
        report.with_verdict(answer).with_content(content.findings)
    }
}

/// Returns the findings that need no lookup.
fn offline_findings(findings: &Findings) -> Findings {
    let holds = |finding: &&Finding| finding.code.outcome != Meaning::Unknown;
    findings.iter().filter(holds).cloned().collect()
}

/// Checks only the file itself. All other checks are listed as not checked, and not as errors.
fn offline(found: &ReviewedObject, subject: &Subject<'_>) -> ObjectReport {
    let verdict = judge(subject, &ReviewFacts::default());
    let findings = offline_findings(verdict.findings());
    let wanted = needs(subject);
    let mut unchecked = Vec::new();
    for class in &wanted.classes {
        unchecked.push(format!(
            "class {class}: its existence, its requirements, and your permission to use it"
        ));
    }
    if let Some(account) = &wanted.impersonate {
        unchecked.push(format!(
            "your permission to impersonate ServiceAccount {}",
            account.path()
        ));
    }
    if let Some(image) = &wanted.image {
        unchecked.push(format!(
            "{}: its content, its signatures, and its compatibility with the cluster's version",
            image.reference
        ));
    }
    if let Some(deployment) = &wanted.deployment {
        unchecked.push(format!(
            "BundleDeployment {deployment}, and your permission to approve for its class"
        ));
    }
    for name in &wanted.config_maps {
        unchecked.push(format!(
            "ConfigMap {name}: its immutability, and your permission to read it"
        ));
    }
    let answer = if findings.has_errors() {
        ReviewResult::Rejected
    } else {
        ReviewResult::NotVerified
    };
    ObjectReport::new(found, findings, unchecked).with_verdict(answer)
}
