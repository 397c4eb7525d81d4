//! Registry client with the credentials of the user. Also resolves tags and reads signatures.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bundle_core::diagnostic::{Finding, codes};
use bundle_core::policy::{RawSignature, Unavailable};
use bundle_core::reference::{PinnedReference, Reference};
use bundle_oci::registry::{Client, ClientOptions, Deadlines, Login, Logins, Mirrors};

use crate::failure::{Failure, Outcome};
use crate::ui::Ui;
use crate::ui::password::PasswordSource;

/// The registry client reads at most as many signatures as the verification accepts. Therefore
/// every signature that is read is verified.
const _: () = assert!(bundle_oci::limits::REFERRERS <= bundle_trust::verify::MAX_SIGNATURES);

/// Settings for registries.
#[derive(Debug, Clone)]
pub(crate) struct RegistrySettings {
    /// Additional certificate authorities: PEM files, and folders of PEM files.
    pub(crate) ca_files: Vec<PathBuf>,
    /// Folders with certificates by registry.
    pub(crate) host_folders: Vec<PathBuf>,
    /// Client certificate, and the key of the certificate.
    pub(crate) client_certificate: Option<(PathBuf, PathBuf)>,
    /// Hosts that use plain HTTP.
    pub(crate) plain_http: BTreeSet<String>,
    /// Credentials from flags for one registry.
    pub(crate) login: Option<ExplicitLogin>,
    /// Files with credentials, in docker's and podman's format.
    pub(crate) credentials: ConfigFiles,
    /// Files with mirrors and blocked registries.
    pub(crate) mirrors: ConfigFiles,
    /// Deadline of a call. `None` means the default deadlines of the client.
    pub(crate) deadline: Option<Duration>,
}

/// Credentials with a secret from standard input.
#[derive(Debug, Clone)]
pub(crate) struct ExplicitLogin {
    /// Host and port of the registry that may receive the secret. Other registries never receive
    /// the secret.
    pub(crate) registry: Option<String>,
    /// Kind of secret.
    pub(crate) secret: LoginSecret,
}

/// Secret from standard input.
#[derive(Debug, Clone)]
pub(crate) enum LoginSecret {
    /// Password of this user.
    Password {
        /// User name.
        user: String,
    },
    /// Bearer token for requests to the registry.
    Token,
}

/// Files to read.
#[derive(Debug, Clone)]
pub(crate) enum ConfigFiles {
    /// This file, which must exist.
    Explicit(PathBuf),
    /// All of these files that exist.
    Defaults(Vec<PathBuf>),
    /// The first existing file in `first`, and every `*.conf` in `folders`.
    FirstAndFolders {
        /// Files.
        first: Vec<PathBuf>,
        /// Folders.
        folders: Vec<PathBuf>,
    },
}

impl RegistrySettings {
    /// Sets the registry that may receive the credentials from flags: the registry of this
    /// reference.
    #[must_use]
    pub(crate) fn of(mut self, reference: &Reference) -> Self {
        if let Some(login) = &mut self.login {
            login.registry = Some(reference.registry().to_owned());
        }
        self
    }

    fn explicit_logins(&self) -> Outcome<BTreeMap<String, Login>> {
        let Some(ExplicitLogin { registry, secret }) = &self.login else {
            return Ok(BTreeMap::new());
        };
        let Some(registry) = registry else {
            return Err(Finding::error(
                codes::usage::BAD_ARGUMENT,
                "credentials on the command line are for the registry of a single reference, and \
                this command can use several registries",
            )
            .hint("log in with `docker login`, or use --authfile")
            .into());
        };
        let read = PasswordSource::Stdin
            .get("Password for the registry")?
            .to_string();
        let login = match secret {
            LoginSecret::Password { user } => Login::Password {
                user: user.clone(),
                password: read,
            },
            LoginSecret::Token => Login::Bearer(read),
        };
        Ok(BTreeMap::from([(registry.clone(), login)]))
    }
}

impl ConfigFiles {
    fn list(&self) -> Outcome<Vec<PathBuf>> {
        match self {
            Self::Explicit(file) => {
                // A file from a flag must exist. Missing default files are ignored.
                fs_err::metadata(file).map_err(|error| unreadable(&error))?;
                Ok(vec![file.clone()])
            }
            Self::Defaults(files) => Ok(files.clone()),
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
        "cannot read a file with registry settings",
    )
    .hint("check the path and its permissions");
    Failure::caused(finding, error)
}

/// Returns a client, without opening a connection.
pub(crate) fn client(settings: &RegistrySettings) -> Outcome<Client> {
    crate::system::tls::install();
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
            explicit: settings.explicit_logins()?,
            files: settings.credentials.list()?,
            ..Logins::anonymous()
        },
        deadlines,
        user_agent: concat!("kubectl-bundle/", env!("CARGO_PKG_VERSION")).to_owned(),
        resolver: None,
    };
    Ok(Client::new(options).map_err(|error| error.finding())?)
}

/// Returns the signatures of the content, as input of a policy decision. A failed lookup is an
/// error, never an empty list.
pub(crate) async fn signatures(
    ui: &mut Ui,
    client: &Client,
    pinned: &PinnedReference,
) -> Result<Vec<RawSignature>, Unavailable> {
    let _progress = ui.progress("fetching signatures");
    client.signatures(pinned).await.map_err(Unavailable::from)
}

/// Returns the pinned reference and the signatures of its content. Prints nothing, so that the
/// caller can print meanwhile.
pub(crate) async fn pin_with_signatures(
    client: &Client,
    reference: &Reference,
) -> Outcome<(PinnedReference, Result<Vec<RawSignature>, Unavailable>)> {
    let digest = client.resolve(reference).await;
    let pinned = reference.pin(digest.map_err(|error| error.finding())?);
    let signatures = client.signatures(&pinned).await.map_err(Unavailable::from);
    Ok((pinned, signatures))
}

/// Returns the pinned reference. A tag is resolved to its current digest, and this digest is
/// printed.
pub(crate) async fn pin(
    ui: &mut Ui,
    client: &Client,
    reference: &Reference,
) -> Outcome<PinnedReference> {
    if let Some(pinned) = reference.pinned() {
        return Ok(pinned);
    }
    let digest = {
        let _progress = ui.progress(&format!("resolving {reference}"));
        client
            .resolve(reference)
            .await
            .map_err(|error| error.finding())?
    };
    let pinned = reference.pin(digest);
    ui.note(format!("{reference} is {}", pinned.digest()));
    Ok(pinned)
}
