//! `sign`: a private key signs the digest of a bundle, and the signature goes beside it.
//! Not here: cryptography (bundle-trust) and where a registry keeps signatures (bundle-oci).

use std::collections::BTreeMap;
use std::path::PathBuf;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::package::Facts;
use bundle_core::reference::Reference;
use bundle_oci::registry::Repository;
use bundle_trust::keys::{self, PrivateKey};
use bundle_trust::{sign, verify};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::password::Source;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;
use crate::ui::format::Format;
use crate::{failure, files};

/// What `sign` needs to know.
pub(crate) struct Sign {
    /// The bundle.
    pub(crate) reference: Reference,
    /// The private key.
    pub(crate) key: PathBuf,
    /// Where its password comes from.
    pub(crate) password: Source,
    /// How it is stored.
    pub(crate) form: Form,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

/// How a signature is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As cosign 3 does.
    Bundle,
    /// As cosign 2 does.
    Legacy,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Bundle => verify::BUNDLE,
            Self::Legacy => verify::LEGACY,
        }
    }
}

#[derive(Serialize)]
struct Report {
    reference: String,
    key: String,
    algorithm: &'static str,
    form: &'static str,
    /// Whether it was signed so before.
    unchanged: bool,
}

impl Sign {
    /// Opens the key, resolves, signs, stores, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The key first: a wrong password should not cost a network round.
        let key = self.open_key()?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let manifest = client
            .raw_manifest(
                &Repository::from(pinned.reference()),
                pinned.digest().as_str(),
            )
            .await
            .map_err(|error| error.finding())?;
        let says = identity(manifest.parse().map_err(unreadable)?.annotations());
        let form = self.form.name();
        let unchanged = {
            let _progress = ui.progress("looking for signatures that are there");
            let found = client
                .signatures(&pinned)
                .await
                .map_err(|error| error.finding())?;
            sign::is_signed(&found, pinned.digest(), key.public(), form, &says)
        };
        if !unchanged {
            let _progress = ui.progress("storing the signature");
            let stored = match self.form {
                Form::Bundle => {
                    let bundle = sign::bundle(&key, &sign::signed(&pinned, &says)?)?;
                    client.push_signature(&pinned, bundle).await
                }
                Form::Legacy => {
                    let payload = sign::simple(&pinned, &says)?;
                    let annotations = sign::annotations(&key, &payload)?;
                    client
                        .push_legacy_signature(&pinned, payload, annotations)
                        .await
                }
            };
            stored.map_err(|error| error.finding())?;
        }
        ui.note(format!(
            "{} with {} ({}, {})",
            if unchanged {
                "nothing to do: it is signed already"
            } else {
                "signed"
            },
            self.key.display(),
            key.public().algorithm(),
            key.public().id()
        ));
        let report = Report {
            reference: pinned.without_tag(),
            key: key.public().id().to_string(),
            algorithm: key.public().algorithm(),
            form,
            unchanged,
        };
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }

    fn open_key(&self) -> Outcome<PrivateKey> {
        let pem = files::read_text(&self.key)?;
        let password = self
            .password
            .get(&format!("Password for {}", self.key.display()))?;
        keys::load_private(&pem, &password)
            .map_err(|finding| Failure::from(failure::in_file(finding, &self.key)))
    }
}

fn unreadable(why: String) -> Failure {
    Finding::error(
        codes::registry::MALFORMED,
        format!("the manifest cannot be used: {why}"),
    )
    .into()
}

/// What is signed beside the digest: name and version, where the manifest says them.
fn identity(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let facts = Facts::from_annotations(annotations).unwrap_or_default();
    let version = facts.version.map(|version| version.to_string());
    [("name", facts.name), ("version", version)]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
