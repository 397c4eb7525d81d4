//! Checks the content of a reviewed image, with the findings that `build` would report. The rules
//! are in `bundle_core::check`.

use std::sync::{Arc, Mutex, PoisonError};

use bundle_cluster::review::{ImageLookups, MatchingPolicies, ReviewLookups as _};
use bundle_core::check::Installation;
use bundle_core::diagnostic::{Finding, Findings, Outcome as Meaning, codes};
use bundle_core::format::RenderTarget;
use bundle_core::object::Manifest;
use bundle_core::reference::Reference;
use bundle_core::review::{
    CheckedBundleSpec, CheckedDeploymentSpec, ClassFact, Image, Kind, Source, Subject, Verdict,
    needs,
};
use bundle_oci::Limits;
use bundle_oci::registry::ImageMetadata;
use bundle_oci::store::LocatedImage;
use tokio::time::Instant;

use super::lookup::ClusterFacts;
use crate::artifact::folder;
use crate::cluster::definitions::{UpgradeProblem, upgrade_problem};
use crate::failure::Failure;

/// Result of the lookup of an image: its metadata, or the reason why the lookup failed.
type ImageLookup = Result<Arc<ImageMetadata>, Finding>;

/// Image lookups of one review. The result of the review's lookup is stored, so that the content is
/// pulled from the image that was reviewed.
pub(super) struct ReviewedImage<'a> {
    lookup: &'a ClusterFacts,
    lookup_result: Mutex<Option<ImageLookup>>,
}

/// The findings on the content of an object.
#[derive(Default)]
pub(super) struct ContentFindings {
    /// The findings.
    pub(super) findings: Findings,
    /// Checks that were not possible, with one sentence for each check.
    pub(super) unchecked: Vec<String>,
}

impl<'a> ReviewedImage<'a> {
    /// Returns the image lookups of one review, which use the connections in `lookup`.
    pub(super) fn new(lookup: &'a ClusterFacts) -> Self {
        Self {
            lookup,
            lookup_result: Mutex::default(),
        }
    }

    /// Reads and checks the content of `subject`. `verdict` is the result of the review.
    pub(super) async fn content(
        &self,
        subject: &Subject<'_>,
        verdict: &Verdict,
    ) -> ContentFindings {
        let mut result = ContentFindings::default();
        let needs = needs(subject);
        let Some(image) = needs.image else {
            if let Some(source) =
                source(subject).filter(|source| !matches!(source, Source::Image { .. }))
            {
                let kind = source.kind();
                result.unchecked.push(format!(
                    "the objects in its content, which is of source type {kind}"
                ));
            }
            return result;
        };
        let reference = &image.reference;
        for class in &needs.classes {
            let fact = self.lookup.class(class).await;
            if matches!(fact, ClassFact::Known(class) if !class.is_ours()) {
                result.unchecked.push(format!(
                    "{reference}: its objects, because the provisioner of class {class} has its own rules for them"
                ));
                return result;
            }
        }
        let lookup_result = self.lookup_result().clone();
        let was_looked_up = lookup_result.is_some();
        match self.files(reference, lookup_result).await {
            Ok(files) => {
                let spec = match subject.kind {
                    Kind::BundleDeployment => {
                        CheckedDeploymentSpec::parse(&subject.new["spec"]).ok()
                    }
                    _ => None,
                };
                let installation = spec.as_ref().map(|spec| Installation {
                    target_namespace: spec.target_namespace.as_deref(),
                    create_namespace: spec.create_namespace,
                    drift_ignore: &spec.drift_ignore,
                });
                let target = render_target(subject, spec.as_ref());
                match folder::findings(&files, installation.as_ref(), &target) {
                    Ok((findings, objects)) => {
                        result.findings = located(findings, reference);
                        if let Some(spec) = &spec {
                            self.definition_upgrades(&objects, spec, &mut result).await;
                        }
                    }
                    Err(Failure::Findings { findings, .. }) => {
                        let (missing, found) = findings
                            .into_iter()
                            .partition(|one| one.code == codes::usage::NO_PROGRAM);
                        let missing: Findings = missing;
                        result.findings = located(found, reference);
                        result.unchecked.extend(
                            missing
                                .iter()
                                .map(|why| format!("{reference}: the objects in it: {why}")),
                        );
                    }
                    Err(_) => result
                        .unchecked
                        .push(format!("{reference}: the objects in it")),
                }
            }
            // In two cases, the error is not reported as a finding. First, the review itself
            // reports an error that is not transient. Second, the review of an object with a proof
            // annotation needs no registry, so the image can be pushed to the registry later.
            Err(ContentError::Image(why))
                if why.code.outcome != Meaning::Unknown
                    || !was_looked_up && matches!(verdict, Verdict::Admit { .. }) =>
            {
                result
                    .unchecked
                    .push(format!("{reference}: the objects in it: {why}"));
            }
            Err(ContentError::Image(why) | ContentError::Files(why)) => {
                let field = match subject.kind {
                    Kind::BundleDeployment => "spec.template.spec.source.image.ref",
                    _ => "spec.source.image.ref",
                };
                let mut finding = Finding::error(
                    why.code,
                    format!("the content of {reference} cannot be checked: {why}"),
                )
                .at_field(field);
                finding.hint = why.hint;
                result.findings.push(finding);
            }
        }
        result
    }

    /// Adds the findings about upgrades of CustomResourceDefinitions that exist in the cluster.
    async fn definition_upgrades(
        &self,
        objects: &[Manifest],
        spec: &CheckedDeploymentSpec,
        result: &mut ContentFindings,
    ) {
        for object in objects.iter().filter(|object| object.id.is_definition()) {
            let name = &object.id.name;
            let subject = format!("CustomResourceDefinition {name}");
            let live = match self.lookup.definition(name).await {
                Ok(Some(live)) => live,
                Ok(None) => continue,
                Err(why) => {
                    result
                        .unchecked
                        .push(format!("{subject}: its upgrade: {why}"));
                    continue;
                }
            };
            let client = self.lookup.client();
            let exceptions = &spec.crd_exceptions;
            let definitions = (&live, &object.value);
            let (code, message) = match upgrade_problem(client, definitions, exceptions).await {
                None => continue,
                Some(UpgradeProblem::Unvalidated(why)) => {
                    result
                        .unchecked
                        .push(format!("{subject}: its existing custom objects: {why}"));
                    continue;
                }
                Some(UpgradeProblem::Unsafe(message)) => {
                    (codes::install::UNSAFE_CRD_UPGRADE, message)
                }
                Some(UpgradeProblem::Invalid(message)) => {
                    (codes::install::EXISTING_RESOURCES_INVALID, message)
                }
            };
            let finding = Finding::error(code, message).about(subject);
            result.findings.push(finding.hint(
                "to allow a change, add an exception with its reason to spec.crdUpgrades.exceptions",
            ));
        }
    }

    fn lookup_result(&self) -> std::sync::MutexGuard<'_, Option<ImageLookup>> {
        self.lookup_result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Pulls the files of the image that the review looked up. If there was no lookup, pulls the
    /// image that `reference` names now.
    async fn files(
        &self,
        reference: &Reference,
        lookup_result: Option<ImageLookup>,
    ) -> Result<bundle_oci::Files, ContentError> {
        let reference = match lookup_result {
            Some(lookup_result) => lookup_result
                .map_err(ContentError::Image)?
                .pinned
                .reference()
                .clone(),
            None => reference.clone(),
        };
        let located = LocatedImage::reference(&self.lookup.registry, &reference);
        let located = located.await.map_err(ContentError::Image)?;
        located
            .files(&Limits::default())
            .await
            .map_err(ContentError::Files)
    }
}

/// Returns the settings with which the content of `subject` is rendered.
fn render_target(subject: &Subject<'_>, spec: Option<&CheckedDeploymentSpec>) -> RenderTarget {
    let Some(spec) = spec else {
        return RenderTarget::default();
    };
    let config = &subject.new["spec"]["config"];
    RenderTarget {
        name: subject.new["metadata"]["name"].as_str().map(str::to_owned),
        config: (!config.is_null()).then(|| config.clone()),
        ..RenderTarget::in_namespace(spec.target_namespace.as_deref())
    }
}

/// Returns the source of the content of a Bundle or BundleDeployment; `None` if its spec is
/// invalid.
fn source(subject: &Subject<'_>) -> Option<Source> {
    let spec = &subject.new["spec"];
    match subject.kind {
        Kind::Bundle => Some(CheckedBundleSpec::parse(spec).ok()?.source),
        Kind::BundleDeployment => {
            let spec = CheckedDeploymentSpec::parse(spec).ok()?;
            Some(spec.template.bundle.source)
        }
        Kind::BundleApproval => None,
    }
}

/// The reason why content is not read.
enum ContentError {
    /// The manifest could not be read.
    Image(Finding),
    /// The layers cannot be pulled or unpacked.
    Files(Finding),
}

/// Adds the image reference before each path in the findings.
fn located(findings: Findings, reference: &Reference) -> Findings {
    let located = findings.into_iter().map(|mut finding| {
        if let Some(file) = &mut finding.place.file {
            *file = format!("{reference}/{file}");
        }
        finding
    });
    located.collect()
}

impl ImageLookups for ReviewedImage<'_> {
    type VerificationSlot = ();

    fn policies(&self, image: &Image) -> Result<MatchingPolicies, Finding> {
        self.lookup.policies(image)
    }

    async fn read_image(&self, image: &Image, policies: &MatchingPolicies) -> ImageLookup {
        let lookup_result = self.lookup.read_image(image, policies).await;
        *self.lookup_result() = Some(lookup_result.clone());
        lookup_result
    }

    async fn reserve(&self, bytes: u64) -> Result<(), Finding> {
        self.lookup.reserve(bytes).await
    }

    async fn forget(&self, image: &Image, policies: &MatchingPolicies) {
        self.lookup.forget(image, policies).await;
    }

    fn reads_rejected_images(&self) -> bool {
        self.lookup.reads_rejected_images()
    }

    async fn verification_slot(&self) -> Result<(), Finding> {
        self.lookup.verification_slot().await
    }

    fn until(&self) -> Option<Instant> {
        self.lookup.until()
    }
}
