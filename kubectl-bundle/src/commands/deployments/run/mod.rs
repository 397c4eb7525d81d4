//! `run`: installs a local folder without a registry. The Bundle in the template of the
//! BundleDeployment has a source of type `upload`. RukPak's command is `rukpakctl run`.

mod arguments;

use std::io::Read as _;
use std::path::PathBuf;

use bundle_api::names::{self, LABEL_OWNER_KIND, LABEL_OWNER_NAME, LABEL_TEMPLATE_HASH};
use bundle_api::{Bundle, BundleDeployment, ServiceAccountName};
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::format::RenderTarget;
use bundle_core::images::MutableTagAllowlist;
use bundle_core::names::KubeName;
use bundle_core::package::Format;
use bundle_core::reference::Digest;
use bundle_core::review::template_hash;
use bundle_oci::Limits;
use bytes::Bytes;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::bundle_spec::put_class;
use super::deployment::DeploymentWrite;
use super::revisions;
use super::state::prediction::Goal;
use super::state::waiting::wait_until_done;
use super::write::WriteOutcome;
use crate::artifact::folder::{self, BuildOptions};
use crate::artifact::input::FallbackMetadata;
use crate::artifact::packing::Packing;
use crate::cluster::Cluster;
use crate::cluster::apply::DryRun;
use crate::cluster::content::{self, ContentService, ContentServiceSettings, UploadOutcome};
use crate::cluster::wait::Wait;
use crate::commands::interruptible;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

pub(crate) use arguments::Arguments;

/// Version of content without a version.
const NO_VERSION: &str = "0.0.0";
/// Number of hexadecimal digits of the content digest that the template label contains. A label
/// value has at most 63 characters.
const LABEL_DIGITS: usize = 40;

/// Settings of `run`.
pub(crate) struct Run {
    /// Folder of manifests.
    pub(crate) folder: PathBuf,
    /// Images that may have a moving tag or no tag.
    pub(crate) allowed: MutableTagAllowlist,
    /// ProvisionerClass; `None` keeps the class of the object.
    pub(crate) class: Option<String>,
    /// Settings of the BundleDeployment.
    pub(crate) deployment: DeploymentWrite,
    /// Wait mode and timeout for the Bundle of the template.
    pub(crate) upload_wait: Wait,
    /// Settings of the content service.
    pub(crate) service: ContentServiceSettings,
    /// ServiceAccount to act as.
    pub(crate) account: Option<ServiceAccountName>,
}

/// Archive that is uploaded, with its digest and the format of its content.
struct UploadArchive {
    bytes: Bytes,
    digest: Digest,
    format: Format,
}

impl Run {
    /// Packs the folder, applies the object, uploads the content, and waits if requested.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The future is on the heap, because it is large.
        Box::pin(interruptible(self.install(ui))).await
    }

    async fn install(mut self, ui: &mut Ui) -> Outcome {
        let archive = self.pack(ui)?;
        let mut service = None;
        if self.deployment.write.dry_run != DryRun::Client {
            let settings = &mut self.deployment.write.cluster;
            let caller = content::act_as(settings, self.account.as_ref()).await?;
            let own = std::mem::replace(settings, caller);
            if self.deployment.write.dry_run == DryRun::None {
                // The content service must be found before the object is written. Without the
                // content service, the object would wait for its upload forever.
                service = Some(ContentService::find(&own, &self.service, settings).await?);
            }
        }
        let written = self.apply(ui, &archive).await?;
        let (Some(written), Some(service)) = (written, service) else {
            return Ok(());
        };
        written.fail_without_class(&self.deployment.name)?;
        let bundle = self.generated_bundle(ui, &written).await?;
        let progress = ui.progress(&format!("uploading {} bytes", archive.bytes.len()));
        let uploaded = service.upload(&bundle, archive.bytes).await?;
        drop(progress);
        // RukPak prints the same texts.
        ui.note(match uploaded {
            UploadOutcome::Stored => {
                format!("successfully uploaded bundle content for \"{bundle}\"")
            }
            UploadOutcome::Identical => format!("bundle \"{bundle}\" is already up-to-date"),
        });
        self.deployment.wait(ui, &written).await
    }

    /// Checks and packs the folder.
    fn pack(&mut self, ui: &mut Ui) -> Outcome<UploadArchive> {
        let default = (self.deployment.name.clone(), NO_VERSION.to_owned());
        let options = BuildOptions {
            fallback_metadata: FallbackMetadata {
                default: Some(default),
                ..FallbackMetadata::default()
            },
            allowed: std::mem::take(&mut self.allowed),
            packing: Packing {
                // Annotations of the manifest would record the git origin, and an upload has no
                // manifest.
                no_provenance: true,
                ..Packing::default()
            },
            target: RenderTarget {
                name: Some(self.deployment.name.clone()),
                ..RenderTarget::in_namespace(self.deployment.settings.target_namespace.as_deref())
            },
            ..BuildOptions::default()
        };
        let built = folder::open(ui, &self.folder, options)?.pack(ui)?;
        if !built.package.resources.is_empty() {
            ui.note("resources of the package are not uploaded: they are not installed");
        }
        // The first layer is the content. Further layers are resources.
        let unreadable = |error: &std::io::Error| {
            let finding = Finding::error(codes::usage::FILE_UNREADABLE, "cannot read the archive");
            Failure::caused(finding.in_file(self.folder.display().to_string()), error)
        };
        let mut bytes = Vec::new();
        let layer = built.packed.layers.first();
        let digest = layer.map(|layer| layer.descriptor.digest.clone());
        if let Some(layer) = layer {
            let mut reader = layer.reader().map_err(|error| unreadable(&error))?;
            let read = reader.read_to_end(&mut bytes);
            read.map_err(|error| unreadable(&error))?;
        }
        let most = Limits::default().layer;
        if bytes.len() as u64 > most {
            return Err(Finding::error(
                codes::registry::TOO_LARGE,
                format!(
                    "the archive has {} bytes; bundle-webhook receives at most {} MiB",
                    bytes.len(),
                    most >> 20
                ),
            )
            .in_file(self.folder.display().to_string())
            .hint("push the content to a registry, and use `kubectl bundle deploy`")
            .into());
        }
        Ok(UploadArchive {
            digest: digest.unwrap_or_else(|| Digest::of(&bytes)),
            bytes: bytes.into(),
            format: built.content.format,
        })
    }

    async fn apply(&self, ui: &mut Ui, archive: &UploadArchive) -> Outcome<Option<WriteOutcome>> {
        let class = self.class.as_deref();
        let digits: String = archive.digest.hex().chars().take(LABEL_DIGITS).collect();
        let compose = async |before: Option<&Value>, spec: &mut Value| {
            let empty = Value::Null;
            let old = before.map_or(&empty, |before| &before["spec"]);
            put_class(class, old, spec, async || archive.format).await;
            let template = &mut spec["template"];
            // A changed label changes the template, so the reconciler creates another Bundle.
            template["metadata"]["labels"][names::LABEL_UPLOAD_DIGEST] = json!(digits);
            let (old, bundle) = (&old["template"]["spec"], &mut template["spec"]);
            bundle["source"] = json!({"type": "upload", "upload": {}});
            put_class(class, old, bundle, async || archive.format).await;
            json!({"name": self.deployment.name})
        };
        self.deployment.apply(ui, class, compose).await
    }

    /// Waits until the reconciler has set the phase of the Bundle that it created for the template.
    /// Returns the name of this Bundle.
    async fn generated_bundle(&self, ui: &mut Ui, written: &WriteOutcome) -> Outcome<KubeName> {
        let name = &self.deployment.name;
        let hash = template_hash(&written.applied.after["spec"]["template"]);
        let known = written.known_failure();
        let mut found = None;
        let is_done = async |deployment: &BundleDeployment| {
            found = find(&written.cluster, deployment, &hash).await?;
            Ok(found.is_some())
        };
        let (cluster, wait) = (&written.cluster, self.upload_wait);
        let goal = Goal::Bundle;
        wait_until_done(ui, cluster, name, goal, wait, known.as_deref(), is_done).await?;
        let bundle = found.map(|bundle| bundle.name_any()).unwrap_or_default();
        bundle.parse().map_err(|error| {
            let finding = Finding::error(
                codes::cluster::BAD_ANSWER,
                format!("the API server {} returned an invalid name", cluster.name),
            );
            Failure::caused(finding, &error)
        })
    }
}

/// Returns the Bundle for the template with this hash. Returns `None` until the reconciler has set
/// the phase of the Bundle.
async fn find(
    cluster: &Cluster,
    deployment: &BundleDeployment,
    hash: &str,
) -> Outcome<Option<Bundle>> {
    let owner = deployment.name_any();
    let selector = [
        (LABEL_OWNER_KIND, "BundleDeployment"),
        (LABEL_OWNER_NAME, &owner),
        (LABEL_TEMPLATE_HASH, hash),
    ];
    let selector: Vec<_> = selector
        .iter()
        .map(|(label, value)| format!("{label}={value}"))
        .collect();
    let api: Api<Bundle> = Api::all(cluster.client.clone());
    let parameters = ListParams::default().labels(&selector.join(","));
    let list = cluster.send(api.list(&parameters)).await?;
    Ok(select_bundle(list.items, deployment, hash))
}

/// Returns the Bundle that bundle-webhook created for the BundleDeployment. If the name
/// `DEPLOYMENT-HASH` is in use, bundle-webhook chooses another name. A Bundle without a phase is
/// ignored.
fn select_bundle(
    bundles: Vec<Bundle>,
    deployment: &BundleDeployment,
    hash: &str,
) -> Option<Bundle> {
    let usual = format!("{}-{hash}", deployment.name_any());
    let is_owned = |bundle: &Bundle| {
        let generated = revisions::generated_hash(bundle, deployment);
        generated.is_some_and(|generated| generated == hash)
    };
    let has_phase = |bundle: &Bundle| {
        let status = bundle.status.as_ref();
        status.is_some_and(|status| status.phase.is_some())
    };
    let owned = bundles.into_iter().filter(is_owned);
    let first = owned.min_by_key(|bundle| bundle.name_any() != usual);
    first.filter(has_phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bundle(name: &str, owner: &str, phase: Option<&str>) -> Bundle {
        serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {names::ANNOTATION_STAMP: json!({
                "generated_for": {"uid": owner, "hash": "abc"},
            }).to_string()}},
            "spec": {"provisionerClassName": "c", "source": {"type": "upload", "upload": {}}},
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    #[test]
    fn chooses_the_bundle_of_the_pod_once_it_has_a_phase() {
        let deployment = serde_json::from_value(json!({
            "metadata": {"name": "web", "uid": "1"},
            "spec": {"provisionerClassName": "c", "template": {"spec": {"provisionerClassName": "c", "source": {"type": "upload"}}}},
        }))
        .unwrap();
        let chosen = |bundles: &[Bundle]| {
            select_bundle(bundles.to_vec(), &deployment, "abc").map(|bundle| bundle.name_any())
        };
        let usual = bundle("web-abc", "1", Some("Pending"));
        let other = bundle("web-fff", "1", Some("Pending"));
        let foreign = bundle("web-abc", "2", Some("Pending"));
        let early = bundle("web-abc", "1", None);
        for (bundles, expected) in [
            (&[other.clone(), usual][..], Some("web-abc")),
            (&[foreign, other.clone()], Some("web-fff")),
            (&[early, other], None),
            (&[], None),
        ] {
            assert_eq!(chosen(bundles).as_deref(), expected);
        }
    }
}
