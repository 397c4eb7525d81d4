//! `sign`: a private key, or whoever an identity token names, signs the digest of a bundle, and the signature goes beside it.
//! Not here: cryptography (bundle-trust), where a registry keeps signatures (bundle-oci) and the services for certificates (sigstore).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::package::Facts;
use bundle_core::policy::{IdentityName, RawSignature};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, Repository};
use bundle_trust::keyless::What;
use bundle_trust::keys::{self, PrivateKey};
use bundle_trust::{sign, verify};
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::password::Source;
use crate::registry::{self, RegistrySettings};
use crate::sigstore::{self, Services};
use crate::ui::Ui;
use crate::ui::format::Format;
use crate::{failure, files};

/// What `sign` needs to know.
pub(crate) struct Sign {
    /// The bundle.
    pub(crate) reference: Reference,
    /// Who signs.
    pub(crate) by: By,
    /// How it is stored.
    pub(crate) form: Form,
    /// How to print.
    pub(crate) format: Option<Format>,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

/// Who signs.
pub(crate) enum By {
    /// A private key.
    Key {
        /// Its file.
        file: PathBuf,
        /// Where its password comes from.
        password: Source,
    },
    /// Whoever an identity token names.
    Certificate(Box<sigstore::Settings>),
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

#[derive(Default, Serialize)]
struct Report {
    reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    algorithm: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<String>,
    form: &'static str,
    /// Whether it was signed so before.
    unchanged: bool,
}

/// Who signs, ready to do so.
enum Signer {
    Key(PathBuf, Box<PrivateKey>),
    Certificate(Box<Services>),
}

/// What is to be signed, and what is there.
struct Subject {
    pinned: PinnedReference,
    /// Beside the digest.
    says: sign::Annotations,
    form: Form,
    there: Vec<RawSignature>,
}

impl Sign {
    /// Opens the key or gets the token, resolves, signs, stores, and prints the pinned reference.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The key first: a wrong password should not cost a network round.
        let signer = match self.by {
            By::Key { file, password } => {
                let key = open_key(&file, &password)?;
                Signer::Key(file, Box::new(key))
            }
            By::Certificate(settings) => {
                let _progress = ui.progress("getting an identity token");
                Signer::Certificate(Box::new(Services::open(*settings).await?))
            }
        };
        let client = registry::client(&self.registry)?;
        let pinned = registry::pin(ui, &client, &self.reference).await?;
        let manifest = client
            .raw_manifest(
                &Repository::from(pinned.reference()),
                pinned.digest().as_str(),
            )
            .await
            .map_err(|error| error.finding())?;
        let says = identity(
            manifest
                .parse()
                .map_err(|why| unreadable(&why))?
                .annotations(),
        );
        let there = {
            let _progress = ui.progress("looking for signatures that are there");
            client
                .signatures(&pinned)
                .await
                .map_err(|error| error.finding())?
        };
        let subject = Subject {
            pinned,
            says,
            form: self.form,
            there,
        };
        let mut report = match signer {
            Signer::Key(file, key) => subject.by_key(ui, &client, &file, &key).await?,
            Signer::Certificate(services) => subject.by_certificate(ui, &client, &services).await?,
        };
        report.reference = subject.pinned.without_tag();
        report.form = self.form.name();
        if !ui.structured(self.format, &report)? {
            ui.data(report.reference)?;
        }
        Ok(())
    }
}

impl Subject {
    async fn by_key(
        &self,
        ui: &mut Ui,
        client: &Client,
        file: &Path,
        key: &PrivateKey,
    ) -> Outcome<Report> {
        let (form, digest) = (self.form.name(), self.pinned.digest());
        let unchanged = sign::is_signed(&self.there, digest, key.public(), form, &self.says);
        if !unchanged {
            let payload = self.payload()?;
            let made = match self.form {
                Form::Bundle => RawSignature {
                    bytes: sign::bundle(key, &payload)?,
                    ..RawSignature::default()
                },
                Form::Legacy => RawSignature {
                    annotations: sign::annotations(key, &payload)?,
                    bytes: payload,
                    ..RawSignature::default()
                },
            };
            self.store(ui, client, made).await?;
        }
        ui.note(format!(
            "{} with {} ({}, {})",
            done(unchanged),
            file.display(),
            key.public().algorithm(),
            key.public().id()
        ));
        Ok(Report {
            key: Some(key.public().id().to_string()),
            algorithm: Some(key.public().algorithm()),
            unchanged,
            ..Report::default()
        })
    }

    async fn by_certificate(
        &self,
        ui: &mut Ui,
        client: &Client,
        services: &Services,
    ) -> Outcome<Report> {
        let payload = self.payload()?;
        let what = match self.form {
            Form::Bundle => What::Statement(payload.clone()),
            Form::Legacy => What::Bytes(payload.clone()),
        };
        let signed = {
            let _progress = ui.progress("asking for a certificate");
            services.sign(what).await?
        };
        let name = signed.identity().clone();
        let (form, digest) = (self.form.name(), self.pinned.digest());
        let unchanged = services.root.as_ref().is_some_and(|root| {
            sign::is_certified(&self.there, digest, &name, root, now(), form, &self.says)
        });
        if !unchanged {
            let (entry, timestamp) = {
                let _progress = ui.progress("entering the signature in the log");
                services.evidence(&signed).await?
            };
            let made = match self.form {
                Form::Bundle => RawSignature {
                    bytes: signed.bundle(&entry, timestamp.as_deref())?,
                    artifact_type: sign::BUNDLE_MEDIA_TYPE.to_owned(),
                    ..RawSignature::default()
                },
                Form::Legacy => RawSignature {
                    annotations: signed.annotations(&entry, timestamp.as_deref()),
                    bytes: payload,
                    artifact_type: bundle_oci::media::SIMPLE_SIGNING.to_owned(),
                    ..RawSignature::default()
                },
            };
            match &services.root {
                Some(root) => sign::check_certified(&made, digest, &name, root, now())?,
                None => ui.note(
                    "not checked under a trust root: none was given for these services (--trusted-root)"
                        .to_owned(),
                ),
            }
            self.store(ui, client, made).await?;
        }
        let IdentityName { subject, issuer } = name;
        ui.note(format!("{} as {subject} ({issuer})", done(unchanged)));
        Ok(Report {
            identity: Some(subject),
            issuer: Some(issuer),
            unchanged,
            ..Report::default()
        })
    }

    fn payload(&self) -> Outcome<Vec<u8>> {
        Ok(match self.form {
            Form::Bundle => sign::signed(&self.pinned, &self.says)?,
            Form::Legacy => sign::simple(&self.pinned, &self.says)?,
        })
    }

    async fn store(&self, ui: &mut Ui, client: &Client, made: RawSignature) -> Outcome {
        let _progress = ui.progress("storing the signature");
        let stored = match self.form {
            Form::Bundle => client.push_signature(&self.pinned, made.bytes).await,
            Form::Legacy => {
                client
                    .push_legacy_signature(&self.pinned, made.bytes, made.annotations)
                    .await
            }
        };
        stored.map_err(|error| error.finding())?;
        Ok(())
    }
}

/// The time to judge by: the clocks of services may be ahead of ours.
fn now() -> Timestamp {
    Timestamp::now() + std::time::Duration::from_secs(300)
}

fn done(unchanged: bool) -> &'static str {
    if unchanged {
        "nothing to do: it is signed already"
    } else {
        "signed"
    }
}

fn open_key(file: &Path, password: &Source) -> Outcome<PrivateKey> {
    let pem = files::read_text(file)?;
    let password = password.get(&format!("Password for {}", file.display()))?;
    keys::load_private(&pem, &password)
        .map_err(|finding| Failure::from(failure::in_file(finding, file)))
}

fn unreadable(why: &str) -> Failure {
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
