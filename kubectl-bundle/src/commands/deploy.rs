//! `deploy`: a BundleDeployment with the Bundle in its template, created or brought up to date.

use std::time::Duration;

use bundle_api::ServiceAccountName;
use bundle_api::deployment::{Collision, DeleteCustomResources, DeleteObjects, DriftMode, Replace};
use bundle_api::{BundleDeployment, names};
use bundle_core::diagnostic::{Severity, codes};
use bundle_core::package::{Facts, Format};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, RegistryError};
use bundle_trust::carried;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::cluster::apply::FIELD_MANAGER;
use crate::cluster::owned;
use crate::cluster::wait::Wait;
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

use super::outlook::Goal;
use super::waiting;
use super::write::{Write, Written};

/// Time that a registry may take to tell the format of a new object's content.
const FORMAT_WITHIN: Duration = Duration::from_secs(5);

/// The class of an object that has none yet, where none is named: the one of those that the chart ships that reads the format.
fn default_class(format: Format) -> &'static str {
    match format {
        Format::PlainV0 => "core-rukpak-io-plain",
        Format::RegistryV1 => "core-rukpak-io-registry",
        Format::HelmV3 => "core-rukpak-io-helm",
    }
}

/// A field that a flag may set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Setting<T> {
    /// The flag is not given: the field keeps its value.
    #[default]
    Keep,
    /// The flag is given with an empty value: the field is removed.
    Unset,
    /// The field gets this value.
    Set(T),
}

/// The content that a Bundle is made of.
pub(crate) struct Content {
    /// The bundle.
    pub(crate) reference: Reference,
    /// Class of provisioner; `None`: the one that the object has.
    pub(crate) class: Option<String>,
    /// Secret with credentials for the registry.
    pub(crate) pull_secret: Setting<String>,
    /// `true` if a tag is left as it is.
    pub(crate) keep_tag: bool,
    /// `true` if manifest and signatures are carried on the object.
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
    /// Fields of the spec beside the template.
    pub(crate) settings: Settings,
    /// The state to wait for, where the command waits.
    pub(crate) goal: Goal,
    /// How to write it.
    pub(crate) write: Write,
}

/// Fields of a BundleDeployment that flags set.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    /// ServiceAccount to install as.
    pub(crate) service_account: Setting<ServiceAccountName>,
    /// Namespace for objects of the content that name none.
    pub(crate) target_namespace: Option<String>,
    /// Create that namespace if it is missing.
    pub(crate) create_namespace: Option<bool>,
    /// Treatment of objects that exist already and belong to nobody.
    pub(crate) collision: Option<Collision>,
    /// Treatment of objects that somebody changed.
    pub(crate) drift: Option<DriftMode>,
    /// Change nothing while this is true.
    pub(crate) paused: Option<bool>,
    /// Fate of the objects at the end.
    pub(crate) deletion: Option<DeleteObjects>,
    /// Fate of CRDs with resources at the end.
    pub(crate) custom_resources: Option<DeleteCustomResources>,
    /// Treatment of objects with fields that cannot be changed.
    pub(crate) replace: Option<Replace>,
}

impl Settings {
    /// Puts them over what is kept of the spec.
    fn put(&self, spec: &mut Value) {
        match &self.service_account {
            Setting::Keep => {}
            Setting::Unset => {
                if let Some(spec) = spec.as_object_mut() {
                    spec.remove("serviceAccount");
                }
            }
            Setting::Set(account) => spec["serviceAccount"] = json!(account),
        }
        if let Some(namespace) = &self.target_namespace {
            spec["targetNamespace"] = json!(namespace);
        }
        if let Some(creates) = self.create_namespace {
            spec["createNamespace"] = json!(creates);
        }
        if let Some(collision) = self.collision {
            spec["collision"] = json!(collision);
        }
        if let Some(mode) = self.drift {
            spec["drift"]["mode"] = json!(mode);
        }
        if let Some(paused) = self.paused {
            spec["paused"] = json!(paused);
        }
        if let Some(objects) = self.deletion {
            spec["deletion"]["objects"] = json!(objects);
        }
        if let Some(resources) = self.custom_resources {
            spec["deletion"]["customResources"] = json!(resources);
        }
        if let Some(replace) = self.replace {
            spec["rollout"]["replace"] = json!(replace);
        }
    }
}

/// The image of an object, as it is written.
pub(super) struct Described {
    reference: String,
    /// The content, if it is known by its digest.
    pinned: Option<PinnedReference>,
    /// The format of the package, once it was asked for.
    format: OnceCell<Format>,
    /// The annotation that proves it, if that was asked for and is small enough.
    proof: Option<String>,
}

impl Described {
    /// The metadata of the object. The proof of an image stays with it.
    pub(super) fn metadata(&self, name: &str, before: Option<&Value>, image: &str) -> Value {
        let same = |before: &&Value| {
            before
                .pointer(image)
                .is_some_and(|old| *old == self.reference)
        };
        let proof = self.proof.as_deref().or_else(|| {
            let before = before.filter(same)?;
            before["metadata"]["annotations"][names::ANNOTATION_PROOF].as_str()
        });
        match proof {
            Some(proof) => {
                json!({"name": name, "annotations": {names::ANNOTATION_PROOF: proof}})
            }
            None => json!({"name": name}),
        }
    }
}

impl Content {
    /// Pins the reference, and prints to what; collects the proof.
    pub(super) async fn describe(&self, ui: &mut Ui) -> Outcome<Described> {
        let (mut proof, mut known) = (None, None);
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
            let reference = pinned.without_tag();
            known = Some(pinned);
            reference
        };
        Ok(Described {
            reference,
            pinned: known,
            format: OnceCell::new(),
            proof,
        })
    }

    /// The spec of a Bundle: `kept` with the image of `described`, and with the class and pull secret that were given.
    pub(super) async fn put(&self, described: &Described, before: &Value, kept: &mut Value) {
        let mut image = json!({"ref": described.reference});
        let secret = match &self.pull_secret {
            Setting::Keep => kept.pointer("/source/image/pullSecret").cloned(),
            Setting::Unset => None,
            Setting::Set(name) => Some(json!(name)),
        };
        if let Some(secret) = secret {
            image["pullSecret"] = secret;
        }
        kept["source"] = json!({"type": "image", "image": image});
        self.put_class(described, before, kept).await;
    }

    /// The format of the package, as the annotations of its manifest say. Plain where they do not, or where the registry does not answer soon: the pod
    /// refuses content that the class does not read.
    async fn format(&self, described: &Described) -> Format {
        // On the heap: it holds a whole conversation with a registry.
        let asked = Box::pin(async {
            let client = registry::client(&self.registry).ok()?;
            let manifest = client.manifest(described.pinned.as_ref()?).await.ok()?;
            Facts::from_annotations(&manifest.annotations).ok()?.format
        });
        let answer = async {
            let answer = tokio::time::timeout(FORMAT_WITHIN, asked).await;
            answer.ok().flatten().unwrap_or(Format::PlainV0)
        };
        *described.format.get_or_init(|| answer).await
    }

    /// Sets the class that was given; without one the object keeps its own, and a new object gets the one that reads the format.
    async fn put_class(&self, described: &Described, before: &Value, kept: &mut Value) {
        let field = "provisionerClassName";
        match &self.class {
            Some(class) => kept[field] = json!(class),
            None if before[field].is_string() => {}
            None => kept[field] = json!(default_class(self.format(described).await)),
        }
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
        let mut told = None;
        let written = self
            .write
            .apply::<BundleDeployment>(ui, &self.name, async |ui, before| {
                let switch = before.and_then(|before| self.switch(before));
                if let Some(text) = switch.filter(|text| told.as_ref() != Some(text)) {
                    ui.note(&text);
                    told = Some(text);
                }
                self.compose(&described, before).await
            })
            .await?;
        match written {
            Some(written) if self.write.wait != Wait::No => self.wait(ui, &written).await,
            _ => Ok(()),
        }
    }

    /// The object as it is applied: what an earlier apply of ours set, and over it what is given now.
    async fn compose(&self, described: &Described, before: Option<&Value>) -> Value {
        let empty = Value::Null;
        let kept = before.and_then(|before| owned::spec(before, FIELD_MANAGER));
        let mut spec = kept.filter(Value::is_object).unwrap_or_else(|| json!({}));
        let old = before.map_or(&empty, |before| &before["spec"]);
        self.content.put_class(described, old, &mut spec).await;
        let (old, bundle) = (&old["template"]["spec"], &mut spec["template"]["spec"]);
        self.content.put(described, old, bundle).await;
        self.settings.put(&mut spec);
        let image = "/spec/template/spec/source/image/ref";
        json!({
            "apiVersion": names::API_VERSION,
            "kind": "BundleDeployment",
            "metadata": described.metadata(&self.name, before, image),
            "spec": spec,
        })
    }

    /// The consequence of another class for an object that has one.
    fn switch(&self, before: &Value) -> Option<String> {
        let wanted = self.content.class.as_deref()?;
        let old = before["spec"]["provisionerClassName"].as_str()?;
        (old != wanted).then(|| {
            format!(
                "{} changes from class {old} to class {wanted}: that needs verb use on both",
                self.name
            )
        })
    }

    async fn wait(&self, ui: &mut Ui, written: &Written) -> Outcome {
        let name = &self.name;
        written.fail_without_class(name)?;
        let known = written.known_failure();
        let (cluster, wait) = (&written.cluster, self.write.wait);
        waiting::until(ui, cluster, name, self.goal, wait, known.as_deref()).await?;
        ui.note(match self.goal {
            Goal::Healthy => format!("{name} is installed and healthy"),
            _ => format!("{name} is installed"),
        });
        Ok(())
    }
}
