//! Registries as the person at the keyboard: client, pinning a tag, signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, ClientOptions, Deadlines, Login, Logins, Mirrors};

use crate::failure::{Failure, Outcome};
use crate::password::Source;
use crate::ui::Ui;

/// Whatever is read is examined.
const _: () = assert!(bundle_oci::limits::REFERRERS <= bundle_trust::verify::MAX_SIGNATURES);

/// How to talk to registries.
#[derive(Debug, Clone)]
pub(crate) struct RegistrySettings {
    /// Authorities to trust beside the system's: PEM files, and folders of them.
    pub(crate) ca_files: Vec<PathBuf>,
    /// Folders that may hold certificates by registry.
    pub(crate) host_folders: Vec<PathBuf>,
    /// A certificate to show, and its key.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    /// Hosts that speak plain HTTP.
    pub(crate) plain_http: BTreeSet<String>,
    /// A login that was given for one registry.
    pub(crate) login: Option<GivenLogin>,
    /// Files with credentials, as docker and podman keep them.
    pub(crate) credentials: Files,
    /// Files with mirrors and blocked registries.
    pub(crate) mirrors: Files,
    /// How long a call may take; the client's own limits if absent.
    pub(crate) deadline: Option<Duration>,
}

/// A login whose secret comes from standard input.
#[derive(Debug, Clone)]
pub(crate) struct GivenLogin {
    /// Host and port; it is shown to nobody else.
    pub(crate) registry: Option<String>,
    /// Which kind.
    pub(crate) secret: Secret,
}

/// What comes from standard input.
#[derive(Debug, Clone)]
pub(crate) enum Secret {
    /// The password of this user.
    Password {
        /// Name.
        user: String,
    },
    /// A token that the registry itself takes.
    Token,
}

/// Which files are read.
#[derive(Debug, Clone)]
pub(crate) enum Files {
    /// This one, which has to be there.
    Named(PathBuf),
    /// Those of these that are there.
    Usual(Vec<PathBuf>),
    /// The first of these that is there, and every `*.conf` in these folders.
    FirstAndFolders {
        /// Files.
        first: Vec<PathBuf>,
        /// Folders.
        folders: Vec<PathBuf>,
    },
}

impl RegistrySettings {
    /// A login that was given is for the registry of this reference.
    #[must_use]
    pub(crate) fn of(mut self, reference: &Reference) -> Self {
        if let Some(login) = &mut self.login {
            login.registry = Some(reference.registry().to_owned());
        }
        self
    }

    fn given(&self) -> Outcome<BTreeMap<String, Login>> {
        let Some(GivenLogin { registry, secret }) = &self.login else {
            return Ok(BTreeMap::new());
        };
        let Some(registry) = registry else {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                "a login on the command line is for the one registry of a reference, and this verb speaks to others",
            )
            .hint("log in with `docker login`, or give --authfile")
            .into());
        };
        let read = Source::Stdin.get("Password of the registry")?.to_string();
        let login = match secret {
            Secret::Password { user } => Login::Password {
                user: user.clone(),
                password: read,
            },
            Secret::Token => Login::Bearer(read),
        };
        Ok(BTreeMap::from([(registry.clone(), login)]))
    }
}

impl Files {
    fn list(&self) -> Outcome<Vec<PathBuf>> {
        match self {
            Self::Named(file) => {
                // Those that are passed over where they are missing must not be: somebody named it.
                fs_err::metadata(file).map_err(|error| unreadable(&error))?;
                Ok(vec![file.clone()])
            }
            Self::Usual(files) => Ok(files.clone()),
            Self::FirstAndFolders { first, folders } => {
                let mut files: Vec<PathBuf> = first
                    .iter()
                    .find(|file| file.exists())
                    .cloned()
                    .into_iter()
                    .collect();
                for folder in folders {
                    match fs_err::read_dir(folder) {
                        Ok(entries) => {
                            let mut found = Vec::new();
                            for entry in entries {
                                let path = entry.map_err(|error| unreadable(&error))?.path();
                                if path.extension().is_some_and(|end| end == "conf") {
                                    found.push(path);
                                }
                            }
                            found.sort();
                            files.extend(found);
                        }
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        Err(error) => return Err(unreadable(&error)),
                    }
                }
                Ok(files)
            }
        }
    }
}

fn unreadable(error: &io::Error) -> Failure {
    let finding = Finding::error(
        codes::usage::FILE_UNREADABLE,
        "a file with the settings of registries cannot be read",
    )
    .hint("check the path and its permissions");
    Failure::caused(finding, error)
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
        host_folders: settings.host_folders.clone(),
        client_certificate: settings.client_certificate.clone(),
        mirrors: Mirrors::read(&settings.mirrors.list()?).map_err(|error| error.finding())?,
        plain_http: settings.plain_http.clone(),
        logins: Logins {
            given: settings.given()?,
            files: settings.credentials.list()?,
            ..Logins::anonymous()
        },
        deadlines,
        user_agent: concat!("kubectl-bundle/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    Ok(Client::new(options).map_err(|error| error.finding())?)
}

/// What lies beside the content, for a decision: that it cannot be had is an answer as well, and never "nothing".
pub(crate) async fn signatures(
    ui: &mut Ui,
    client: &Client,
    pinned: &PinnedReference,
) -> Result<Vec<RawSignature>, Unavailable> {
    let _progress = ui.progress("fetching signatures");
    client.signatures(pinned).await.map_err(Unavailable::from)
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
