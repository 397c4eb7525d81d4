//! Functions that the verbs for copies share: they build the graph of an artifact, copy the graph
//! to a location, and report the result.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use bundle_oci::registry::{Client, TagPolicy};
use bundle_oci::store::{
    CopyOptions, CopyPlan, LocatedImage, MountSources, send, write_archive, write_layout,
};
use serde::Serialize;

use crate::artifact::location::ArtifactLocation;
use crate::failure::Outcome;
use crate::ui::format::Format;
use crate::ui::{Ui, format_size, one_line};

/// Result for one artifact.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CopyReportItem {
    /// Original location.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// New location: a pinned reference, or a path with the name in the layout.
    pub(crate) target: String,
    pub(crate) digest: String,
    /// Total size in bytes.
    pub(crate) bytes: u64,
    /// Number of referrers and attachments.
    pub(crate) referrers: usize,
    /// Entries of the indexes of the artifact that were not copied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// Result for all artifacts.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CopyReport {
    pub(crate) artifacts: Vec<CopyReportItem>,
    /// `true` if the target changed.
    pub(crate) new: bool,
    /// Number of blobs that were sent.
    pub(crate) sent: usize,
    /// Bytes of the blobs that were sent.
    pub(crate) bytes_sent: u64,
    /// Number of blobs that the registry mounted from another repository.
    pub(crate) mounted: usize,
    /// Number of blobs that the target already had.
    pub(crate) present: usize,
}

impl CopyReport {
    pub(crate) fn empty() -> Self {
        Self {
            artifacts: Vec::new(),
            new: false,
            sent: 0,
            bytes_sent: 0,
            mounted: 0,
            present: 0,
        }
    }
}

/// Returns the policy for tags that refer to other content.
pub(crate) fn tag_policy(overwrite_tag: bool) -> TagPolicy {
    if overwrite_tag {
        TagPolicy::Move
    } else {
        TagPolicy::Keep
    }
}

/// Builds the graph of an image, and prints the images of an index that the source does not
/// contain.
pub(crate) async fn plan_copy(
    ui: &mut Ui,
    image: LocatedImage,
    selection: &CopyOptions,
) -> Outcome<CopyPlan> {
    let what = image
        .origin
        .as_ref()
        .map_or_else(|| image.root.digest.to_string(), ToString::to_string);
    let plan = {
        let _progress = ui.progress(&format!("reading the manifests of {what}"));
        CopyPlan::build(image, selection).await?
    };
    let absent = plan
        .graph
        .missing
        .iter()
        .filter(|one| !one.is_excluded_by_selection)
        .count();
    if absent > 0 {
        ui.note(format!(
            "{what} is copied without {absent} images of its index: {}",
            missing(&plan).join(", ")
        ));
    }
    Ok(plan)
}

fn missing(plan: &CopyPlan) -> Vec<String> {
    let missing = plan.graph.missing.iter();
    let named = missing.map(|one| match &one.descriptor.platform {
        Some(platform) => platform.to_string(),
        None => one.descriptor.digest.to_string(),
    });
    named.collect()
}

/// Writes images to a layout or an archive.
pub(crate) async fn write_to_disk(
    ui: &mut Ui,
    plans: &[CopyPlan],
    target: &ArtifactLocation,
    tags: TagPolicy,
) -> Outcome<CopyReport> {
    let bar = ui.transfer(&format!("writing {target}"));
    let progress = bar.observer();
    let written = match target {
        ArtifactLocation::Layout(path, _) => write_layout(path, plans, tags, &progress).await?,
        ArtifactLocation::Archive(path, _) => write_archive(path, plans, &progress).await?,
        ArtifactLocation::Registry(_) | ArtifactLocation::Folder(_) => {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("{target} is neither a layout nor an archive"),
            )
            .into());
        }
    };
    let path = match target {
        ArtifactLocation::Layout(path, _) | ArtifactLocation::Archive(path, _) => {
            path.display().to_string()
        }
        ArtifactLocation::Registry(_) | ArtifactLocation::Folder(_) => target.to_string(),
    };
    let artifacts = plans.iter().map(|plan| {
        let image = &plan.image;
        let name = image
            .name
            .as_ref()
            .map_or_else(|| format!("@{}", plan.digest()), |name| format!(":{name}"));
        report_item(plan, format!("{path}{name}"))
    });
    Ok(CopyReport {
        artifacts: artifacts.collect(),
        new: !written.is_unchanged(),
        sent: written.new,
        bytes_sent: written.bytes,
        mounted: 0,
        present: written.present,
    })
}

/// Copies an image to a registry and adds the result to the report.
pub(crate) async fn copy_to_registry(
    ui: &mut Ui,
    client: &Client,
    plan: &CopyPlan,
    to: &Reference,
    tags: TagPolicy,
    mounts: &MountSources,
    report: &mut CopyReport,
) -> Outcome {
    let bar = ui.transfer(&format!("pushing to {to}"));
    let sent = send(client, to, plan, tags, mounts, &bar.observer()).await?;
    report.new |= !sent.is_unchanged();
    report.sent += sent.sent;
    report.bytes_sent += sent.bytes;
    report.mounted += sent.mounted;
    report.present += sent.present;
    report
        .artifacts
        .push(report_item(plan, sent.pinned.without_tag()));
    Ok(())
}

/// Returns the report entry of an image.
pub(crate) fn report_item(plan: &CopyPlan, target: String) -> CopyReportItem {
    CopyReportItem {
        source: plan.image.origin.as_ref().map(ToString::to_string),
        target,
        digest: plan.digest().to_string(),
        bytes: plan.graph.size(),
        referrers: plan.graph.attached(),
        missing: missing(plan),
    }
}

/// Prints a summary on one line.
pub(crate) fn print_summary(ui: &mut Ui, report: &CopyReport, target: &str) {
    if !report.new {
        ui.note(format!("nothing to do: {target} is up to date"));
        return;
    }
    let mut parts = vec![format!(
        "{} sent ({})",
        report.sent,
        format_size(report.bytes_sent)
    )];
    if report.mounted > 0 {
        parts.push(format!("{} mounted", report.mounted));
    }
    if report.present > 0 {
        parts.push(format!("{} existed already", report.present));
    }
    let referrers: usize = report.artifacts.iter().map(|one| one.referrers).sum();
    let with = match referrers {
        0 => "no referrers".to_owned(),
        1 => "1 signature, attestation or other referrer".to_owned(),
        many => format!("{many} signatures, attestations or other referrers"),
    };
    ui.note(format!("{target}: {}; with {with}", parts.join(", ")));
}

/// Prints the report as data, or the new location of each artifact.
pub(crate) fn print(ui: &mut Ui, format: Option<Format>, report: &CopyReport) -> Outcome {
    if ui.structured(format, report)? {
        return Ok(());
    }
    for one in &report.artifacts {
        ui.data(one_line(&one.target))?;
    }
    Ok(())
}
