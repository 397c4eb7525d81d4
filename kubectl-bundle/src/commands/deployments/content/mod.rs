//! `content`: lists or downloads the content of a Bundle. RukPak's command is `rukpakctl content`,
//! which needs a Pod for each download.

mod arguments;

use std::fs::File;
use std::io::{self, Write};

use bundle_api::names::{PHASE_UNPACKED, condition};
use bundle_api::{Bundle, ServiceAccountName};
use bundle_cluster::ByName;
use bundle_core::diagnostic::{Finding, codes};
use bundle_core::reference::Digest;
use bundle_oci::Limits;
use bundle_oci::manifest::Descriptor;
use bundle_oci::transfer::archive_file::{self, ArchiveFileError};
use bundle_oci::unpack::FileSink;
use kube::api::Api;
use serde::Serialize;

use crate::cluster::content::{self, ContentService, ContentServiceSettings};
use crate::cluster::{Cluster, KubeSettings};
use crate::commands::interruptible;
use crate::failure::{Failure, Outcome};
use crate::ui::format::Format;
use crate::ui::{Ui, safe};

pub(crate) use arguments::Arguments;

/// Settings of `content`.
pub(crate) struct Content {
    /// Name of the Bundle.
    pub(crate) name: String,
    /// Output.
    pub(crate) output: ContentOutput,
    /// Settings of the content service.
    pub(crate) service: ContentServiceSettings,
    /// ServiceAccount to act as.
    pub(crate) account: Option<ServiceAccountName>,
    /// Cluster settings.
    pub(crate) cluster: KubeSettings,
}

/// Output of `content`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentOutput {
    /// List of files.
    Files(Option<Format>),
    /// The content itself, as a gzipped tar.
    Archive,
}

#[derive(Serialize)]
struct ContentReport {
    bundle: String,
    /// Digest of the archive.
    digest: Digest,
    bytes: u64,
    files: Vec<ContentFile>,
}

#[derive(Serialize)]
struct ContentFile {
    path: String,
    bytes: u64,
}

/// Sink for the files of an archive. It counts the bytes of each file and discards them.
#[derive(Debug, Default)]
struct FileSizes(u64);

impl Write for FileSizes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileSink for FileSizes {
    type File = u64;

    fn end_file(&mut self) -> io::Result<u64> {
        Ok(std::mem::take(&mut self.0))
    }
}

impl Content {
    /// Downloads the content, and prints the archive or the list of its files.
    pub(crate) async fn run(self, ui: &mut Ui) -> Outcome {
        // The future is on the heap, because it is large.
        Box::pin(interruptible(self.print(ui))).await
    }

    async fn print(self, ui: &mut Ui) -> Outcome {
        let caller = content::act_as(&self.cluster, self.account.as_ref()).await?;
        let cluster = Cluster::connect(&caller).await?;
        let api: Api<Bundle> = Api::all(cluster.client.clone());
        let bundle = cluster.send(ByName(&api).get(&self.name)).await?;
        if let Some(why) = without_content(&bundle) {
            return Err(Finding::error(
                codes::cluster::NOT_UNPACKED,
                format!("Bundle {} has no content: {why}", self.name),
            )
            .hint(format!("details: kubectl describe bundle {}", self.name))
            .into());
        }
        let name = self.name.parse().map_err(|_| invalid_name(&self.name))?;
        let service = ContentService::find(&self.cluster, &self.service, &caller).await?;
        let file = tempfile::tempfile().map_err(|error| no_file(&error))?;
        let copy = |file: &File| file.try_clone().map_err(|error| no_file(&error));
        let progress = ui.progress(&format!("downloading the content of {name}"));
        let archive = service.download(&name, copy(&file)?).await?;
        drop(progress);
        let files = list(copy(&file)?, archive.clone()).await?;
        let format = match self.output {
            ContentOutput::Archive => return write(ui, file),
            ContentOutput::Files(format) => format,
        };
        let report = ContentReport {
            bundle: self.name,
            digest: archive.digest,
            bytes: archive.size,
            files,
        };
        if ui.structured(format, &report)? {
            return Ok(());
        }
        for file in &report.files {
            ui.data(safe(&file.path))?;
        }
        Ok(())
    }
}

/// Returns the reason why a Bundle has no content. Returns `None` if its content is unpacked.
fn without_content(bundle: &Bundle) -> Option<String> {
    let Some(status) = &bundle.status else {
        return Some("no provisioner has reconciled it".to_owned());
    };
    let phase = status.phase.as_deref();
    if phase == Some(PHASE_UNPACKED) {
        return None;
    }
    let phase = phase.unwrap_or("without a phase");
    let mut conditions = status.conditions.iter();
    let unpacked = conditions.find(|one| one.type_ == condition::UNPACKED);
    Some(match unpacked {
        Some(found) => format!("it is {phase} ({}: {})", found.reason, found.message),
        None => format!("it is {phase}"),
    })
}

/// Returns the files in an archive, sorted by path. Fails if the archive contains unsafe paths, or
/// if it exceeds the limits for the content of a bundle.
async fn list(file: File, archive: Descriptor) -> Outcome<Vec<ContentFile>> {
    let unpacked =
        archive_file::unpack(file, archive, Limits::default(), FileSizes::default()).await;
    let (files, _) = unpacked.map_err(|error| match error {
        ArchiveFileError::Storage(error) => no_file(&error),
        ArchiveFileError::Content(error) => error.finding().into(),
    })?;
    let files = files.into_iter().filter(|(path, _)| !path.ends_with('/'));
    let files = files.map(|(path, bytes)| ContentFile { path, bytes });
    Ok(files.collect())
}

fn write(ui: &mut Ui, mut file: File) -> Outcome {
    io::Seek::rewind(&mut file).map_err(|error| no_file(&error))?;
    ui.binary(&mut file)
}

fn invalid_name(name: &str) -> Failure {
    Finding::error(
        codes::usage::BAD_ARGUMENT,
        format!("`{}` is not the name of a Bundle", name.escape_debug()),
    )
    .into()
}

fn no_file(error: &io::Error) -> Failure {
    let finding = Finding::error(
        codes::usage::FILE_UNWRITABLE,
        "cannot store the content in a temporary file",
    );
    Failure::caused(finding, error)
}
