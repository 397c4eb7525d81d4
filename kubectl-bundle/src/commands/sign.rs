//! `sign`: a private key signs the digest of a bundle, and the signature goes beside it.
//! Not here: cryptography (bundle-trust) and where a registry keeps signatures (bundle-oci).

use std::collections::BTreeMap;
use std::path::PathBuf;

use bundle_core::package::Facts;
use bundle_core::reference::Reference;
use bundle_trust::keys::{self, PrivateKey};
use bundle_trust::sign;
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
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

#[derive(Serialize)]
struct Report {
    reference: String,
    key: String,
    algorithm: &'static str,
}

impl Sign {
    /// Opens the key, resolves, signs, stores, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The key first: a wrong password should not cost a network round.
        let key = self.open_key()?;
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let manifest = client
            .manifest(&pinned)
            .await
            .map_err(|error| error.finding())?;
        let bytes = sign::sign_digest(&key, &pinned, &identity(&manifest.annotations))?;
        {
            let _progress = ui.progress("storing the signature");
            client
                .push_signature(&pinned, bytes)
                .await
                .map_err(|error| error.finding())?;
        }
        ui.note(format!(
            "signed with {} ({}, {})",
            self.key.display(),
            key.public().algorithm(),
            key.public().id()
        ));
        let report = Report {
            reference: pinned.without_tag(),
            key: key.public().id().to_string(),
            algorithm: key.public().algorithm(),
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

/// What is signed beside the digest: name and version, where the manifest says them.
fn identity(annotations: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let facts = Facts::from_annotations(annotations).unwrap_or_default();
    let version = facts.version.map(|version| version.to_string());
    [("name", facts.name), ("version", version)]
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?)))
        .collect()
}
