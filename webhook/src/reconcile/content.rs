//! The content of a digest: from the copy on disk, else from its registry, verified again in either case.
//! Not here: which digest it has to be (bundle), or who signed it (verify).

use bundle_core::diagnostic::{Findings, Outcome, codes};
use bundle_core::format::{self, Content, Files};
use bundle_core::reference::PinnedReference;
use bundle_oci::registry::{Client, RegistryError};

use super::room::Room;
use super::store::Origin;
use super::trouble::{Retry, Trouble};

/// The registry client for one source, with its pull secret if it names one.
pub(super) async fn registry(
    room: &Room,
    pull_secret: Option<&str>,
    reason: &'static str,
) -> Result<Client, Trouble> {
    room.shared
        .registry_for(pull_secret)
        .await
        .map_err(|error| {
            Trouble::new(
                codes::install::CONTENT_LOST,
                reason,
                crate::chain(&error),
                Retry::Soon,
            )
        })
}

/// A registry's failure, as a trouble.
pub(super) fn trouble(error: RegistryError, reason: &'static str) -> Trouble {
    let finding = bundle_core::diagnostic::Finding::from(error);
    let retry = if finding.code.outcome == Outcome::CannotTell {
        Retry::Soon
    } else {
        Retry::Slowly
    };
    Trouble::findings(reason, &Findings::from(finding), retry)
}

/// The files of `reference`; kept on disk from now on.
pub(super) async fn files(
    room: &Room,
    reference: &PinnedReference,
    pull_secret: Option<&str>,
    reason: &'static str,
) -> Result<Files, Trouble> {
    let key = room.shared.stamp_key();
    let origin = Origin::new(reference, pull_secret);
    if let Some(files) = room.store.read(&origin, key.bytes()) {
        return Ok(files);
    }
    let registry = registry(room, pull_secret, reason).await?;
    let files = registry
        .pull_files(reference, &bundle_oci::Limits::default())
        .await
        .map_err(|error| trouble(error, reason))?;
    if let Err(error) = room.store.write(&origin, key.bytes(), &files) {
        // Without a copy it is pulled each time, which is slow and not wrong.
        tracing::warn!(
            error = crate::chain(&error),
            "content cannot be kept on disk"
        );
    }
    Ok(files)
}

/// The objects in `files`. What cannot be read today cannot be read tomorrow: a digest stands for the same files for ever.
pub(super) fn read(files: &Files, reason: &'static str) -> Result<Content, Trouble> {
    format::read(files).map_err(|findings| Trouble::findings(reason, &findings, Retry::OnChange))
}
