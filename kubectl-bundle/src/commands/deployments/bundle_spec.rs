//! The spec of a Bundle: its image, class and pull secret, for `deploy` and `create`.

use std::time::Duration;

use bundle_api::names;
use bundle_core::diagnostic::{Severity, codes};
use bundle_core::package::{Format, PackageDescription};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, RegistryError};
use bundle_trust::proof_annotation;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::ui::Ui;

/// Timeout for reading the format of the content from the registry. The format is read only for a
/// new object.
const FORMAT_TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the default class of a new object for this format. The Helm chart of bundle-webhook
/// creates these classes.
fn default_class(format: Format) -> &'static str {
    match format {
        Format::PlainV0 => "core-rukpak-io-plain",
        Format::RegistryV1 => "core-rukpak-io-registry",
        Format::HelmV3 => "core-rukpak-io-helm",
    }
}

/// Value of a field that a flag can set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Setting<T> {
    /// The flag is not set: the field keeps its value.
    #[default]
    Keep,
    /// The flag has an empty value: the field is removed.
    Unset,
    /// The field gets this value.
    Set(T),
}

/// Content of a Bundle.
pub(crate) struct BundleContent {
    /// Reference of the bundle.
    pub(crate) reference: Reference,
    /// ProvisionerClass; `None` keeps the class of the object.
    pub(crate) class: Option<String>,
    /// Secret with credentials for the registry.
    pub(crate) pull_secret: Setting<String>,
    /// `true` if a tag is not pinned.
    pub(crate) keep_tag: bool,
    /// `true` if manifest and signatures are added to the object.
    pub(crate) with_proof: bool,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

/// Resolved image of a Bundle.
pub(super) struct ResolvedImage {
    reference: String,
    /// Pinned reference, if the digest is known.
    pinned: Option<PinnedReference>,
    /// Format of the package. The cell is empty until the format is read.
    format: OnceCell<Format>,
    /// Value of the proof annotation (manifest and signatures). `None` if it is not requested, or
    /// is too large.
    proof: Option<String>,
}

impl ResolvedImage {
    /// Returns the pinned reference, or `requested` if the digest is not known.
    pub(super) fn reference(&self, requested: &Reference) -> Reference {
        let pinned = self.pinned.as_ref();
        pinned.map_or(requested, PinnedReference::reference).clone()
    }

    /// Returns the metadata of the object. If the image does not change, the existing object keeps
    /// its proof annotation. `image` is the JSON pointer to the image reference in the object.
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

impl BundleContent {
    /// Resolves the image for the spec. Unless `keep_tag` is set, pins the reference and prints the
    /// digest. If `with_proof` is also set, reads the signatures for the proof annotation.
    pub(super) async fn describe(&self, ui: &mut Ui) -> Outcome<ResolvedImage> {
        let (mut proof, mut known) = (None, None);
        let reference = if self.keep_tag {
            if self.reference.digest().is_none() {
                ui.note(format!(
                    "{} is not pinned: the tag may move before the content is unpacked",
                    self.reference
                ));
            }
            self.reference.to_string()
        } else {
            let client = registry::client(&self.registry)?;
            let pinned = registry::pin(ui, &client, &self.reference).await?;
            if self.with_proof {
                proof = proof_annotation(ui, &client, &pinned).await?;
            }
            let reference = pinned.without_tag();
            known = Some(pinned);
            reference
        };
        Ok(ResolvedImage {
            reference,
            pinned: known,
            format: OnceCell::new(),
            proof,
        })
    }

    /// Sets image, pull secret and class in `kept`, the Bundle spec to apply. `described` is the
    /// resolved image. `before` is the Bundle spec of the existing object.
    pub(super) async fn set_bundle_spec(
        &self,
        described: &ResolvedImage,
        before: &Value,
        kept: &mut Value,
    ) {
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
        self.set_class(described, before, kept).await;
    }

    /// Sets class and template of `spec`, the spec of the BundleDeployment `name`. Returns the
    /// metadata of the BundleDeployment.
    pub(super) async fn set_template(
        &self,
        described: &ResolvedImage,
        name: &str,
        before: Option<&Value>,
        spec: &mut Value,
    ) -> Value {
        let empty = Value::Null;
        let old = before.map_or(&empty, |before| &before["spec"]);
        self.set_class(described, old, spec).await;
        let (old, bundle) = (&old["template"]["spec"], &mut spec["template"]["spec"]);
        self.set_bundle_spec(described, old, bundle).await;
        described.metadata(name, before, "/spec/template/spec/source/image/ref")
    }

    /// Returns the format of the package from the annotations of its manifest. Defaults to the
    /// plain format if the manifest has no format annotation, or if the manifest cannot be read in
    /// time. If this default is wrong, the reconciler rejects the content.
    async fn format(&self, described: &ResolvedImage) -> Format {
        // The future is on the heap, because it is large: it contains all requests to the registry.
        let request = Box::pin(async {
            let client = registry::client(&self.registry).ok()?;
            let manifest = client.manifest(described.pinned.as_ref()?).await.ok()?;
            PackageDescription::from_annotations(&manifest.annotations)
                .ok()?
                .format
        });
        let answer = async {
            let answer = tokio::time::timeout(FORMAT_TIMEOUT, request).await;
            answer.ok().flatten().unwrap_or(Format::PlainV0)
        };
        *described.format.get_or_init(|| answer).await
    }

    /// Sets the class with [`put_class`].
    pub(super) async fn set_class(
        &self,
        described: &ResolvedImage,
        before: &Value,
        spec: &mut Value,
    ) {
        let format = async || self.format(described).await;
        put_class(self.class.as_deref(), before, spec, format).await;
    }
}

/// Sets the class in `kept`, the spec to apply. `class` is the value of the flag. Without the flag,
/// an existing object keeps its class, and a new object gets the default class for the format.
pub(super) async fn put_class(
    class: Option<&str>,
    before: &Value,
    kept: &mut Value,
    format: impl AsyncFnOnce() -> Format,
) {
    let field = "provisionerClassName";
    match class {
        Some(class) => kept[field] = json!(class),
        None if before[field].is_string() => {}
        None => kept[field] = json!(default_class(format().await)),
    }
}

/// Returns the value of the proof annotation: manifest and signatures. If the value is too large,
/// prints a warning and returns `None`.
async fn proof_annotation(
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
    match proof_annotation::encode(&manifest.bytes, &signatures) {
        Ok(proof) => Ok(Some(proof)),
        Err(mut why) if why.code == codes::trust::PROOF_TOO_LARGE => {
            why.severity = Severity::Warning;
            ui.finding(&why);
            Ok(None)
        }
        Err(why) => Err(why.into()),
    }
}
