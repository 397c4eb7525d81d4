//! The description of a trust root that the verbs of `trust` print.

use jiff::Timestamp;
use serde::Serialize;

use crate::failure::Outcome;
use crate::sigstore::root::{RootOrigin, SelectedRoot};
use crate::ui::format::Format;
use crate::ui::{Table, Ui};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TrustReport<'a> {
    #[serde(flatten)]
    origin: &'a RootOrigin,
    /// SHA-256 of the text of the trust root.
    digest: String,
    /// Time until which new signatures are valid under this trust root.
    #[serde(skip_serializing_if = "Option::is_none")]
    signs_until: Option<Timestamp>,
    /// `true` if the repository has a signing config.
    signing_config: bool,
}

/// Prints the origin and properties of the trust root.
pub(super) fn print(ui: &mut Ui, format: Option<Format>, chosen: &SelectedRoot) -> Outcome {
    let report = TrustReport {
        origin: &chosen.origin,
        digest: chosen.root.id().to_string(),
        signs_until: chosen.root.valid_until(),
        signing_config: chosen.signing_config.is_some(),
    };
    if ui.structured(format, &report)? {
        return Ok(());
    }
    let mut table = Table::new(["TRUST ROOT", "DIGEST", "SIGNING CONFIG"]);
    let config = if report.signing_config { "yes" } else { "no" };
    table.row([report.origin.to_string(), report.digest, config.to_owned()]);
    ui.text(&table.render())
}
