//! `create`: creates a Bundle, which is pulled, verified and stored, but not installed.

mod arguments;

use bundle_api::{Bundle, names};
use bundle_core::diagnostic::{Finding, Outcome as Kind};
use kube::api::Api;
use serde_json::{Value, json};

use super::bundle_spec::BundleContent;
use super::write::WriteSettings;
use crate::cluster::apply::FIELD_MANAGER;
use crate::cluster::managed_fields;
use crate::cluster::wait::{Wait, WaitState, deleted_error, timeout_error};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Settings of `create`.
pub(crate) struct Create {
    /// Name of the Bundle.
    pub(crate) name: String,
    /// Content.
    pub(crate) content: BundleContent,
    /// Settings of the write.
    pub(crate) write: WriteSettings,
}

impl Create {
    /// Pins the reference, applies the object, prints the result, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let described = self.content.describe(ui).await?;
        let name = &self.name;
        let written = self
            .write
            .apply::<Bundle>(ui, name, async |_, before| {
                let empty = Value::Null;
                let kept = before.and_then(|before| managed_fields::spec(before, FIELD_MANAGER));
                let mut spec = kept.filter(Value::is_object).unwrap_or_else(|| json!({}));
                let old = before.map_or(&empty, |before| &before["spec"]);
                self.content
                    .set_bundle_spec(&described, old, &mut spec)
                    .await;
                json!({
                    "apiVersion": names::API_VERSION,
                    "kind": "Bundle",
                    "metadata": described.metadata(name, before, "/spec/source/image/ref"),
                    "spec": spec,
                })
            })
            .await?;
        let (Some(written), Wait::Forever | Wait::AtMost(_)) = (written, self.write.wait) else {
            return Ok(());
        };
        written.fail_without_class(name)?;
        let cluster = &written.cluster;
        let api: Api<Bundle> = Api::all(cluster.client.clone());
        let mut progress = ui.steps(&format!("waiting for {name} to be unpacked"));
        let mut last = Vec::new();
        let outcome = {
            let question = async |item: Option<&Bundle>| {
                let Some(item) = item else {
                    return Err(deleted_error(&format!("bundle {name}")));
                };
                let status = item.status.clone().unwrap_or_default();
                if status.phase.as_deref() == Some(names::PHASE_UNPACKED) {
                    return Ok(WaitState::Met);
                }
                last = status
                    .conditions
                    .iter()
                    .filter(|condition| condition.status != "True" && !condition.message.is_empty())
                    .map(|condition| {
                        format!(
                            "{} {}: {}",
                            condition.type_, condition.reason, condition.message
                        )
                    })
                    .collect();
                if !last.is_empty() {
                    progress.now(ui, &format!("{name}: {}", last.join("; ")));
                }
                let unpacked = status.conditions.iter().find(|condition| {
                    condition.type_ == names::condition::UNPACKED
                        && condition.status == "False"
                        && condition.observed_generation == item.metadata.generation
                });
                if let Some(unpacked) = unpacked {
                    let message = &unpacked.message;
                    let code = cluster.failure_code("Bundle", name, message).await;
                    if let Some(code) = code.filter(|code| code.outcome == Kind::Refused) {
                        return Err(Finding::error(code, message)
                            .about(format!("bundle {name}"))
                            .into());
                    }
                }
                Ok(WaitState::Pending)
            };
            cluster
                .wait_for(&api, name, self.write.wait, question, |limit| {
                    timeout_error(&format!("Bundle {name} was not unpacked"), limit)
                        .hint(format!("see `kubectl get bundle {name} -o yaml`"))
                })
                .await
        };
        match outcome {
            Err(Failure::Findings { findings, causes }) if causes.is_empty() => {
                Err(Failure::Findings {
                    findings,
                    causes: last,
                })
            }
            other => other,
        }
    }
}
