//! `load`: copies the content of a saved file to a registry below one prefix, and writes mirror
//! configurations.

mod arguments;
mod mirrors;

use std::path::PathBuf;
use std::sync::Arc;

use bundle_core::reference::Reference;
use bundle_oci::registry::Client;
use bundle_oci::store::{
    CopyOptions, CopyPlan, DiskLayout, ImageSource, LocatedImage, MountSources, RegistryMirror,
    Relocation, Sources,
};

use super::copying::{self, CopyReport};
use crate::failure::Outcome;
use crate::registry::{self, RegistrySettings};
use crate::system::files;
use crate::ui::format::Format;
use crate::ui::{Table, Ui};

pub(crate) use arguments::Arguments;

/// Settings of `load`.
pub(crate) struct Load {
    /// Archive, layout or list.
    pub(crate) file: PathBuf,
    /// Target prefix.
    pub(crate) to: Relocation,
    /// Registry prefix from which all content is read. Only used if `file` is a list.
    pub(crate) from: Option<Relocation>,
    /// Path for mirror configurations.
    pub(crate) mirrors_out: Option<PathBuf>,
    /// `true` if referrers and attachments are not copied.
    pub(crate) no_referrers: bool,
    /// `true` if tags may be moved.
    pub(crate) overwrite_tag: bool,
    /// Output format.
    pub(crate) format: Option<Format>,
    /// Registry settings.
    pub(crate) registry: RegistrySettings,
}

impl Load {
    /// Copies all images and prints the new references.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        let client = registry::client(&self.registry)?;
        let mut targets: Vec<(CopyPlan, Reference)> = Vec::new();
        for (image, selection) in self.images_to_load(ui, &client).await? {
            let plan = copying::plan_copy(ui, image, &selection).await?;
            let target = self.to.of(plan.origin()?, plan.digest())?;
            targets.push((plan, target));
        }
        let tags = copying::tag_policy(self.overwrite_tag);
        let mounts = MountSources::default();
        let mut report = CopyReport::empty();
        for (plan, target) in &targets {
            copying::copy_to_registry(ui, &client, plan, target, tags, &mounts, &mut report)
                .await?;
        }
        let mut mirrors: Vec<RegistryMirror> = Vec::new();
        for (plan, _) in &targets {
            mirrors.push(self.to.mirror(plan.origin()?.registry()));
        }
        mirrors.sort();
        mirrors.dedup();
        if let Some(out) = &self.mirrors_out {
            let insecure = |mirror: &RegistryMirror| uses_plain_http(&self.registry, &mirror.host);
            mirrors::write(ui, out, &mirrors, insecure)?;
        }
        copying::print_summary(ui, &report, &self.to.to_string());
        if ui.structured(self.format, &report)? {
            return Ok(());
        }
        let mut table = Table::new(["SOURCE", "TARGET"]);
        for (one, (plan, _)) in report.artifacts.iter().zip(&targets) {
            table.row([plan.origin()?.to_string(), one.target.clone()]);
        }
        ui.text(&table.render())
    }

    /// Returns the images in the file, each with the options of its copy.
    async fn images_to_load(
        &self,
        ui: &mut Ui,
        client: &Client,
    ) -> Outcome<Vec<(LocatedImage, CopyOptions)>> {
        let selection = CopyOptions {
            without_referrers: self.no_referrers,
            ..CopyOptions::default()
        };
        let listed = !self.file.is_dir() && !bundle_oci::archive::is_archive(&self.file);
        if !listed {
            let disk = Arc::new(DiskLayout::open(&self.file)?);
            let mut found = Vec::new();
            for named in disk.images()? {
                found.push((
                    LocatedImage::named(Arc::clone(&disk), named)?,
                    selection.clone(),
                ));
            }
            return Ok(found);
        }
        let text = files::read(&self.file)?;
        let sources = Sources::parse(&text, &self.file.display().to_string())?;
        let mut found = Vec::new();
        for one in &sources.artifacts {
            let origin = one.origin()?;
            let target = match &self.from {
                Some(from) => from.of(&origin, &one.digest)?,
                None => origin,
            };
            let _progress = ui.progress(&format!("reading {target}"));
            let source = ImageSource::registry(client, &target);
            let image = LocatedImage::listed(source, one).await?;
            found.push((image, one.selection(&selection)?));
        }
        Ok(found)
    }
}

/// Returns `true` if the registry uses plain HTTP, which mirror configurations must state.
fn uses_plain_http(settings: &RegistrySettings, registry: &str) -> bool {
    let host = registry.rsplit_once(':').map_or(registry, |(host, _)| host);
    let loopback = host == "localhost"
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback());
    loopback || settings.plain_http.contains(registry)
}
