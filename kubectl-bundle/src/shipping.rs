//! What the verbs share that carry content: gathering what belongs to an artifact, delivering it to any place, and reporting it.

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Reference;
use bundle_oci::registry::{Client, TagPolicy};
use bundle_oci::store::{
    CopyOptions, CopyPlan, LocatedImage, MountSources, send, write_archive, write_layout,
};
use futures::future::{self, Either};
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::place::Place;
use crate::ui::Ui;
use crate::ui::format::Format;

/// What became of one artifact.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Item {
    /// Where it was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source: Option<String>,
    /// Where it is now: a pinned reference, or a path with the name in it.
    pub(crate) target: String,
    pub(crate) digest: String,
    /// Bytes of all that belongs to it.
    pub(crate) bytes: u64,
    /// How many manifests refer to it.
    pub(crate) referrers: usize,
    /// What its indexes name and it came without.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) missing: Vec<String>,
}

/// What became of all of them.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) artifacts: Vec<Item>,
    /// `true` if anything changed at the target.
    pub(crate) new: bool,
    /// Blobs that were carried.
    pub(crate) sent: usize,
    /// Their bytes.
    pub(crate) bytes_sent: u64,
    /// Blobs that the registry took from a repository of its own.
    pub(crate) mounted: usize,
    /// Blobs that were there.
    pub(crate) present: usize,
}

impl Report {
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

/// What tags may do.
pub(crate) fn policy(overwrite_tag: bool) -> TagPolicy {
    if overwrite_tag {
        TagPolicy::Move
    } else {
        TagPolicy::Keep
    }
}

/// Finds out what belongs to an image, and says what is left out of it.
pub(crate) async fn build(
    ui: &mut Ui,
    image: LocatedImage,
    selection: &CopyOptions,
) -> Outcome<CopyPlan> {
    let what = image
        .origin
        .as_ref()
        .map_or_else(|| image.root.digest.to_string(), ToString::to_string);
    let plan = {
        let _progress = ui.progress(&format!("looking through {what}"));
        CopyPlan::build(image, selection).await?
    };
    let absent = plan.graph.missing.iter().filter(|one| !one.chosen).count();
    if absent > 0 {
        ui.note(format!(
            "{what} comes without {absent} of the images that it names: {}",
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

/// Brings shipments to a layout or an archive.
pub(crate) async fn deliver(
    ui: &mut Ui,
    plans: &[CopyPlan],
    target: &Place,
    tags: TagPolicy,
) -> Outcome<Report> {
    let bar = ui.transfer(&format!("writing {target}"));
    let progress = bar.observer();
    let written = match target {
        Place::Layout(path, _) => write_layout(path, plans, tags, &progress).await?,
        Place::Archive(path, _) => write_archive(path, plans, &progress).await?,
        Place::Registry(_) | Place::Folder(_) => {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                format!("{target} is neither a layout nor an archive"),
            )
            .into());
        }
    };
    let path = match target {
        Place::Layout(path, _) | Place::Archive(path, _) => path.display().to_string(),
        Place::Registry(_) | Place::Folder(_) => target.to_string(),
    };
    let artifacts = plans.iter().map(|plan| {
        let image = &plan.image;
        let name = image
            .name
            .as_ref()
            .map_or_else(|| format!("@{}", plan.digest()), |name| format!(":{name}"));
        item(plan, format!("{path}{name}"))
    });
    Ok(Report {
        artifacts: artifacts.collect(),
        new: !written.is_unchanged(),
        sent: written.new,
        bytes_sent: written.bytes,
        mounted: 0,
        present: written.present,
    })
}

/// Sends a shipment to a registry, and adds what became of it to the report.
pub(crate) async fn dispatch(
    ui: &mut Ui,
    client: &Client,
    plan: &CopyPlan,
    to: &Reference,
    tags: TagPolicy,
    mounts: &MountSources,
    report: &mut Report,
) -> Outcome {
    let bar = ui.transfer(&format!("pushing to {to}"));
    let sent = send(client, to, plan, tags, mounts, &bar.observer()).await?;
    report.new |= !sent.is_unchanged();
    report.sent += sent.sent;
    report.bytes_sent += sent.bytes;
    report.mounted += sent.mounted;
    report.present += sent.present;
    report.artifacts.push(item(plan, sent.pinned.without_tag()));
    Ok(())
}

/// What the report says of a shipment.
pub(crate) fn item(plan: &CopyPlan, target: String) -> Item {
    Item {
        source: plan.image.origin.as_ref().map(ToString::to_string),
        target,
        digest: plan.digest().to_string(),
        bytes: plan.graph.size(),
        referrers: plan.graph.attached(),
        missing: missing(plan),
    }
}

/// Says in a line what was done.
pub(crate) fn tell(ui: &mut Ui, report: &Report, target: &str) {
    if !report.new {
        ui.note(format!(
            "nothing to do: everything is there already, {target}"
        ));
        return;
    }
    let mut parts = vec![format!(
        "{} sent ({})",
        report.sent,
        human(report.bytes_sent)
    )];
    if report.mounted > 0 {
        parts.push(format!("{} mounted", report.mounted));
    }
    if report.present > 0 {
        parts.push(format!("{} there already", report.present));
    }
    let referrers: usize = report.artifacts.iter().map(|one| one.referrers).sum();
    let with = match referrers {
        0 => "nothing that refers to it".to_owned(),
        1 => "1 signature, attestation or other referrer".to_owned(),
        many => format!("{many} signatures, attestations or other referrers"),
    };
    ui.note(format!("{target}: {}; with {with}", parts.join(", ")));
}

/// Prints the report as data, or where each artifact is now.
pub(crate) fn print(ui: &mut Ui, format: Option<Format>, report: &Report) -> Outcome {
    if ui.structured(format, report)? {
        return Ok(());
    }
    for one in &report.artifacts {
        ui.data(&one.target)?;
    }
    Ok(())
}

/// A size as people read it.
pub(crate) fn human(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// Runs work that can be interrupted: then what it had begun is cleared away before the program ends.
pub(crate) async fn interruptible<T>(work: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    let signal = Box::pin(signal());
    match future::select(Box::pin(work), signal).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right(((), _)) => Err(Failure::from(
            Finding::error(codes::usage::INTERRUPTED, "interrupted")
                .hint("nothing was left under the name of the target; the same command begins again, and what a registry or layout has by then is not sent again"),
        )),
    }
}

/// Ctrl-C, or the wish of whoever ends processes politely.
async fn signal() {
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            future::pending::<()>().await;
        }
    };
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let terminated = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signal) => {
                    signal.recv().await;
                }
                Err(_) => future::pending::<()>().await,
            }
        };
        future::select(Box::pin(interrupted), Box::pin(terminated)).await;
    }
    #[cfg(not(unix))]
    interrupted.await;
}
