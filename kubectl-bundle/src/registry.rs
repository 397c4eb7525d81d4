//! Registries as the person at the keyboard: client, pinning a tag, signatures.
//! Not here: the protocol (bundle-oci).

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, ClientOptions, Deadlines, Logins};

use crate::failure::Outcome;
use crate::ui::Ui;

/// How to talk to registries.
#[derive(Debug, Clone)]
pub(crate) struct RegistrySettings {
    /// PEM files of authorities to trust beside the system's.
    pub(crate) ca_files: Vec<PathBuf>,
    /// Hosts that speak plain HTTP.
    pub(crate) plain_http: BTreeSet<String>,
    /// Files with credentials, as docker and podman keep them.
    pub(crate) credential_files: Vec<PathBuf>,
    /// How long a call may take; the client's own limits if absent.
    pub(crate) deadline: Option<Duration>,
}

/// A client. Connects to nothing yet.
pub(crate) fn client(settings: &RegistrySettings) -> Outcome<Client> {
    crate::tls::install();
    let mut deadlines = Deadlines::default();
    if let Some(limit) = settings.deadline {
        deadlines.call = limit;
        deadlines.stall = deadlines.stall.min(limit);
        deadlines.connect = deadlines.connect.min(limit);
    }
    let options = ClientOptions {
        ca_files: settings.ca_files.clone(),
        plain_http: settings.plain_http.clone(),
        logins: Logins {
            files: settings.credential_files.clone(),
            ..Logins::anonymous()
        },
        deadlines,
        user_agent: concat!("kubectl-bundle/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    Ok(Client::new(options).map_err(|error| error.finding())?)
}

/// The reference with a digest: the one that it has, or the one that its tag names now, which is said.
pub(crate) async fn pin(
    ui: &mut Ui,
    client: &Client,
    reference: &Reference,
) -> Outcome<PinnedReference> {
    if let Some(pinned) = reference.pinned() {
        return Ok(pinned);
    }
    let digest = {
        let _progress = ui.progress(&format!("asking what {reference} is"));
        client
            .resolve(reference)
            .await
            .map_err(|error| error.finding())?
    };
    let pinned = reference.pin(digest);
    ui.note(format!("{reference} is {}", pinned.digest()));
    Ok(pinned)
}
