//! `deploy`: a BundleDeployment with the Bundle in its template, created or brought up to date.
//! Not here: installing (the webhook), writing and printing (write).

use std::collections::BTreeMap;

use bundle_api::deployment::{Collision, ServiceAccountName};
use bundle_api::names;
use bundle_api::source::{BundleSource, ImageSource};
use bundle_api::{BundleDeployment, BundleDeploymentSpec, BundleSpec, BundleTemplate};
use bundle_core::diagnostic::{Severity, codes};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, RegistryError};
use bundle_trust::carried;
use kube::api::Api;

use crate::cluster::Cluster;
use crate::cluster::wait::{Seen, Wait, gone, late};
use crate::failure::{Failure, Outcome};
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

use super::deployment::{is_installed, obstacles};
use super::write::Write;

/// The content that a Bundle is made of.
pub(crate) struct Content {
    /// The bundle.
    pub(crate) reference: Reference,
    /// Class of provisioner.
    pub(crate) class: String,
    /// Secret with credentials for the registry.
    pub(crate) pull_secret: Option<String>,
    /// Whether a tag is left as it is.
    pub(crate) keep_tag: bool,
    /// Whether manifest and signatures are carried on the object.
    pub(crate) with_proof: bool,
    /// How to talk to registries.
    pub(crate) registry: RegistrySettings,
}

/// What `deploy` needs to know.
pub(crate) struct Deploy {
    /// Name of the BundleDeployment.
    pub(crate) name: String,
    /// What it is made of.
    pub(crate) content: Content,
    /// ServiceAccount to install as.
    pub(crate) service_account: Option<ServiceAccountName>,
    /// What to do with objects that are nobody's.
    pub(crate) collision: Option<Collision>,
    /// How to write it.
    pub(crate) write: Write,
}

/// What an object says of its content.
pub(super) struct Described {
    /// The spec of the Bundle.
    pub(super) spec: BundleSpec,
    /// The annotation that proves it, if that was asked for and is small enough.
    pub(super) proof: Option<String>,
}

impl Described {
    /// The annotations of the object.
    pub(super) fn annotations(&self) -> Option<BTreeMap<String, String>> {
        let proof = self.proof.clone()?;
        Some(BTreeMap::from([(
            names::ANNOTATION_PROOF.to_owned(),
            proof,
        )]))
    }
}

impl Content {
    /// The spec of the Bundle, and its proof; a tag is pinned first, and that is said.
    pub(super) async fn describe(&self, ui: &mut Ui) -> Outcome<Described> {
        let mut proof = None;
        let reference = if self.keep_tag {
            if self.reference.digest().is_none() {
                ui.note(format!(
                    "{} is not pinned: what it names may change before it is unpacked",
                    self.reference
                ));
            }
            self.reference.to_string()
        } else {
            let client = registry::client(&self.registry)?;
            let pinned = registry::pin(ui, &client, &self.reference).await?;
            if self.with_proof {
                proof = carried(ui, &client, &pinned).await?;
            }
            pinned.without_tag()
        };
        let spec = BundleSpec {
            provisioner_class_name: self.class.clone(),
            source: BundleSource {
                kind: "image".to_owned(),
                image: Some(ImageSource {
                    reference,
                    pull_secret: self.pull_secret.clone(),
                }),
                ..BundleSource::default()
            },
        };
        Ok(Described { spec, proof })
    }
}

/// Manifest and signatures as an annotation; nothing, and a warning, where they do not fit.
async fn carried(
    ui: &mut Ui,
    client: &Client,
    pinned: &PinnedReference,
) -> Outcome<Option<String>> {
    let (manifest, signatures) = {
        let _progress = ui.progress(&format!("reading the signatures of {pinned}"));
        let explain = |error: RegistryError| error.finding();
        let manifest = client.manifest(pinned).await.map_err(explain)?;
        (manifest, client.signatures(pinned).await.map_err(explain)?)
    };
    match carried::encode(&manifest.bytes, &signatures) {
        Ok(proof) => Ok(Some(proof)),
        Err(mut why) if why.code == codes::trust::PROOF_TOO_LARGE => {
            why.severity = Severity::Warning;
            ui.finding(&why);
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}

impl Deploy {
    /// Pins, applies, prints, and waits if asked.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let described = self.content.describe(ui).await?;
        let annotations = described.annotations();
        let spec = BundleDeploymentSpec {
            provisioner_class_name: self.content.class.clone(),
            template: BundleTemplate {
                spec: described.spec,
                ..BundleTemplate::default()
            },
            service_account: self.service_account.clone(),
            collision: self.collision,
            ..BundleDeploymentSpec::default()
        };
        let mut object = BundleDeployment::new(&self.name, spec);
        // Labels of the CRD are none of the object's.
        object.metadata.labels = None;
        object.metadata.annotations = annotations;
        let cluster = self.write.apply(ui, &object).await?;
        match cluster {
            Some(cluster) if self.write.wait != Wait::No => {
                installed(ui, &cluster, &self.name, self.write.wait).await
            }
            _ => Ok(()),
        }
    }
}

async fn installed(ui: &mut Ui, cluster: &Cluster, name: &str, wait: Wait) -> Outcome {
    let api: Api<BundleDeployment> = Api::all(cluster.client.clone());
    let progress = ui.progress(&format!("waiting for {name} to be installed"));
    let mut last = Vec::new();
    let outcome = {
        let question = |item: Option<&BundleDeployment>| {
            let Some(item) = item else {
                return Err(gone(&format!("bundledeployment {name}")));
            };
            if is_installed(item) {
                return Ok(Seen::Done);
            }
            last = obstacles(item);
            if !last.is_empty() {
                progress.now(format!("{name}: {}", last.join("; ")));
            }
            Ok(Seen::NotYet)
        };
        cluster
            .wait_for(&api, name, wait, question, |limit| {
                late(&format!("bundledeployment {name} was not installed"), limit).hint(format!(
                    "see `kubectl bundle status {name}`; the installation goes on"
                ))
            })
            .await
    };
    drop(progress);
    match outcome {
        Ok(()) => {
            ui.note(format!("{name} is installed"));
            Ok(())
        }
        Err(Failure::Findings { findings, causes }) if causes.is_empty() && !last.is_empty() => {
            Err(Failure::Findings {
                findings,
                causes: last,
            })
        }
        Err(other) => Err(other),
    }
}
