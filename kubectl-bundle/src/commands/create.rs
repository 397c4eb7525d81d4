//! `create`: a Bundle, which is pulled, verified and kept, but not installed.
//! Not here: installing one (deploy).

use bundle_api::Bundle;
use kube::api::Api;

use crate::cluster::wait::{Seen, Wait, gone, late};
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

use super::deploy::Content;
use super::write::Write;

/// What `create` needs to know.
pub(crate) struct Create {
    /// Name of the Bundle.
    pub(crate) name: String,
    /// What it is made of.
    pub(crate) content: Content,
    /// How to write it.
    pub(crate) write: Write,
}

impl Create {
    /// Pins, applies, prints, and waits if asked.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let described = self.content.describe(ui).await?;
        let annotations = described.annotations();
        let mut object = Bundle::new(&self.name, described.spec);
        object.metadata.annotations = annotations;
        let cluster = self.write.apply(ui, &object).await?;
        let (Some(cluster), Wait::Forever | Wait::AtMost(_)) = (cluster, self.write.wait) else {
            return Ok(());
        };
        let api: Api<Bundle> = Api::all(cluster.client.clone());
        let name = &self.name;
        let progress = ui.progress(&format!("waiting for {name} to be unpacked"));
        let mut last = Vec::new();
        let outcome = {
            let question = |item: Option<&Bundle>| {
                let Some(item) = item else {
                    return Err(gone(&format!("bundle {name}")));
                };
                let status = item.status.clone().unwrap_or_default();
                if status.phase.as_deref() == Some("Unpacked") {
                    return Ok(Seen::Done);
                }
                last = status
                    .conditions
                    .into_iter()
                    .filter(|condition| condition.status != "True" && !condition.message.is_empty())
                    .map(|condition| {
                        format!(
                            "{} {}: {}",
                            condition.type_, condition.reason, condition.message
                        )
                    })
                    .collect();
                progress.now(format!("{name}: {}", last.join("; ")));
                Ok(Seen::NotYet)
            };
            cluster
                .wait_for(&api, name, self.write.wait, question, |limit| {
                    late(&format!("bundle {name} was not unpacked"), limit)
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
