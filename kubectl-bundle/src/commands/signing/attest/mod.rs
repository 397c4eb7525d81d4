//! `attest`: signs a predicate about the digest of a bundle and stores it as a referrer.

mod arguments;

use std::path::PathBuf;

use bundle_core::reference::Reference;
use bundle_trust::attest::{self, PredicateType};
use bundle_trust::verify::Content;
use serde::Serialize;

use super::predicate;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::signer::{Payload, SignerInfo, SignerSettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `attest`.
pub(crate) struct Attest {
    /// The bundle.
    pub(crate) reference: Reference,
    /// File of the predicate.
    pub(crate) predicate: PathBuf,
    /// Predicate type.
    pub(crate) kind: PredicateType,
    /// Signer.
    pub(crate) by: SignerSettings,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttestReport {
    reference: String,
    predicate_type: String,
    #[serde(flatten)]
    signer: SignerInfo,
    /// `true` if the same attestation existed before.
    unchanged: bool,
}

impl Attest {
    /// Reads the predicate, opens the key or gets the token, resolves the reference, signs, stores
    /// the attestation, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let predicate = predicate::read(&self.predicate, self.kind)?;
        let signer = self.by.open(ui).await?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let there = {
            let _progress = ui.progress("looking up existing attestations");
            client
                .signatures(&pinned)
                .await
                .map_err(|error| error.finding())?
        };
        let payload = Payload::Statement(attest::statement(
            &pinned.reference().name(),
            pinned.digest(),
            &predicate,
        ));
        let made = signer
            .sign(ui, payload, &Content::named(pinned.digest()), &|maker| {
                maker.has_attested(&there, pinned.digest(), &predicate)
            })
            .await?;
        let unchanged = made.signature.is_none();
        let kind = predicate.kind().as_str();
        if let Some(signature) = made.signature {
            let _progress = ui.progress("storing the attestation");
            client
                .push_attestation(&pinned, kind, signature.bytes)
                .await
                .map_err(|error| error.finding())?;
        }
        let done = if unchanged {
            "nothing to do: this attestation exists already"
        } else {
            "attested"
        };
        ui.note(format!("{done} {} ({kind})", made.signer.text));
        let report = AttestReport {
            reference: pinned.without_tag(),
            predicate_type: kind.to_owned(),
            signer: made.signer,
            unchanged,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }
}
