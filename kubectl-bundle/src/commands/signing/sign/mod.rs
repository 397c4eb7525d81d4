//! `sign`: signs the digest of a bundle and stores the signature in the registry.

mod arguments;
pub(crate) mod file;

use std::collections::BTreeMap;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::package::PackageDescription;
use bundle_core::policy::RawSignature;
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, Repository};
use bundle_trust::verify::Content;
use bundle_trust::{sign, verify};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::signer::{Payload, SignerInfo, SignerSettings};
use crate::ui::Ui;
use crate::ui::format::Format;

pub(crate) use arguments::Arguments;

/// Settings of `sign`.
pub(crate) struct Sign {
    /// The bundle.
    pub(crate) reference: Reference,
    /// Signer.
    pub(crate) signer: SignerSettings,
    /// Storage format of the signature.
    pub(crate) form: StorageFormat,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

/// Storage format of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageFormat {
    /// Format of cosign 3.
    Bundle,
    /// Format of cosign 2.
    Legacy,
}

impl StorageFormat {
    fn name(self) -> &'static str {
        match self {
            Self::Bundle => verify::BUNDLE,
            Self::Legacy => verify::LEGACY,
        }
    }
}

#[derive(Serialize)]
struct SignReport {
    reference: String,
    #[serde(flatten)]
    signer: SignerInfo,
    form: &'static str,
    /// `true` if the same signature existed before.
    unchanged: bool,
}

impl Sign {
    /// Opens the key or gets the token, resolves the reference, signs, stores the signature, and
    /// prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The key is opened first, so that a wrong password causes no request.
        let signer = self.signer.open(ui).await?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let says = identity(&client, &pinned).await?;
        let there = {
            let _progress = ui.progress("looking up existing signatures");
            client
                .signatures(&pinned)
                .await
                .map_err(|error| error.finding())?
        };
        let payload = match self.form {
            StorageFormat::Bundle => Payload::Statement(sign::signed(&pinned, &says)?),
            StorageFormat::Legacy => Payload::Simple(sign::simple(&pinned, &says)?),
        };
        let form = self.form.name();
        let made = signer
            .sign(ui, payload, &Content::named(pinned.digest()), &|maker| {
                maker.has_signed(&there, pinned.digest(), form, &says)
            })
            .await?;
        let unchanged = made.signature.is_none();
        if let Some(signature) = made.signature {
            let _progress = ui.progress("storing the signature");
            store(&client, &pinned, self.form, signature).await?;
        }
        let done = if unchanged {
            "nothing to do: this signature exists already"
        } else {
            "signed"
        };
        ui.note(format!("{done} {}", made.signer.text));
        let report = SignReport {
            reference: pinned.without_tag(),
            signer: made.signer,
            form,
            unchanged,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }
}

async fn store(
    client: &Client,
    pinned: &PinnedReference,
    form: StorageFormat,
    signature: RawSignature,
) -> Outcome {
    let stored = match form {
        StorageFormat::Bundle => client.push_signature(pinned, signature.bytes).await,
        StorageFormat::Legacy => {
            client
                .push_legacy_signature(pinned, signature.bytes, signature.annotations)
                .await
        }
    };
    stored.map_err(|error| error.finding())?;
    Ok(())
}

fn unreadable(why: &str) -> Failure {
    Finding::error(
        codes::registry::MALFORMED,
        format!("the manifest is invalid: {why}"),
    )
    .into()
}

/// Returns the annotations to sign: name and version from the manifest.
async fn identity(client: &Client, pinned: &PinnedReference) -> Outcome<BTreeMap<String, String>> {
    let repository = Repository::from(pinned.reference());
    let manifest = client
        .raw_manifest(&repository, pinned.digest().as_str())
        .await
        .map_err(|error| error.finding())?;
    let manifest = manifest.parse().map_err(|why| unreadable(&why))?;
    let facts = PackageDescription::from_annotations(manifest.annotations()).unwrap_or_default();
    let version = facts.version.map(|version| version.to_string());
    Ok([("name", facts.name), ("version", version)]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect())
}
