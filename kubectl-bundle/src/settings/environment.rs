//! Everything that is read from the environment, once, at the start.
//! Not here: what follows from it.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::PathBuf;

use crate::password::Source;
use crate::registry::Files;
use crate::sigstore::TokenSource;

/// What the process was given besides its arguments.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about the environment"
)]
pub(crate) struct Environment {
    /// `NO_COLOR` is set and not empty.
    pub(crate) no_color: bool,
    /// `CLICOLOR_FORCE` is set and not 0.
    pub(crate) force_color: bool,
    /// `TERM=dumb`.
    pub(crate) dumb_terminal: bool,
    /// Stdout is a terminal.
    pub(crate) stdout_is_terminal: bool,
    /// Stderr is a terminal.
    pub(crate) stderr_is_terminal: bool,
    /// Stdin is a terminal.
    stdin_is_terminal: bool,
    /// `CI` says that nobody is there.
    ci: bool,
    /// The files of `KUBECONFIG`.
    pub(crate) kubeconfig: Vec<PathBuf>,
    /// The home folder.
    pub(crate) home: Option<PathBuf>,
    /// Whether this process runs in a pod that may ask its API server.
    pub(crate) in_cluster: bool,
    /// `DOCKER_CONFIG`, `REGISTRY_AUTH_FILE`, `XDG_RUNTIME_DIR`.
    credentials: [Option<PathBuf>; 3],
    /// `XDG_CONFIG_HOME`.
    config: Option<PathBuf>,
    /// `CONTAINERS_REGISTRIES_CONF`.
    registries_conf: Option<PathBuf>,
    /// `SOURCE_DATE_EPOCH`: the one time that a build may write.
    pub(crate) source_date: Option<String>,
    /// `BUNDLE_PASSWORD`, else `COSIGN_PASSWORD`; an empty one counts.
    pub(crate) password: Option<String>,
    /// `SIGSTORE_ID_TOKEN`.
    token: Option<String>,
    /// `ACTIONS_ID_TOKEN_REQUEST_URL` and `ACTIONS_ID_TOKEN_REQUEST_TOKEN`.
    github: Option<(String, String)>,
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn filled(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

impl Environment {
    /// Reads it.
    pub(crate) fn read() -> Self {
        Self {
            no_color: filled("NO_COLOR").is_some(),
            force_color: filled("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            dumb_terminal: filled("TERM").is_some_and(|value| value == "dumb"),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            ci: filled("CI").is_some_and(|value| value != "false" && value != "0"),
            kubeconfig: filled("KUBECONFIG").map_or_else(Vec::new, |list| {
                env::split_paths(&list)
                    .filter(|path| !path.as_os_str().is_empty())
                    .collect()
            }),
            home: filled("HOME")
                .or_else(|| filled("USERPROFILE"))
                .map(PathBuf::from),
            in_cluster: filled("KUBERNETES_SERVICE_HOST").is_some(),
            credentials: ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"]
                .map(|name| filled(name).map(PathBuf::from)),
            config: filled("XDG_CONFIG_HOME").map(PathBuf::from),
            registries_conf: filled("CONTAINERS_REGISTRIES_CONF").map(PathBuf::from),
            source_date: filled("SOURCE_DATE_EPOCH")
                .map(|text| text.to_string_lossy().into_owned()),
            password: env::var("BUNDLE_PASSWORD")
                .or_else(|_| env::var("COSIGN_PASSWORD"))
                .ok(),
            token: text("SIGSTORE_ID_TOKEN"),
            github: text("ACTIONS_ID_TOKEN_REQUEST_URL")
                .zip(text("ACTIONS_ID_TOKEN_REQUEST_TOKEN")),
        }
    }

    /// Whether somebody is there who could be asked something.
    pub(crate) fn is_attended(&self) -> bool {
        self.stdin_is_terminal && self.stderr_is_terminal && !self.ci
    }

    /// Where an identity token comes from that was not given.
    pub(crate) fn token_source(&self) -> TokenSource {
        match (&self.token, &self.github) {
            (Some(token), _) => TokenSource::Environment(token.clone()),
            (None, Some((url, token))) => TokenSource::GitHub {
                url: url.clone(),
                token: token.clone(),
            },
            (None, None) => TokenSource::Missing,
        }
    }

    /// The files in which podman and docker keep credentials, those that were named first.
    pub(crate) fn credential_files(&self) -> Vec<PathBuf> {
        let [docker, podman, runtime] = &self.credentials;
        let home = self.home.as_ref();
        [
            podman.clone(),
            docker.as_ref().map(|folder| folder.join("config.json")),
            home.filter(|_| docker.is_none())
                .map(|home| home.join(".docker").join("config.json")),
            runtime
                .as_ref()
                .map(|folder| folder.join("containers").join("auth.json")),
            self.containers().map(|folder| folder.join("auth.json")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Where podman keeps what one user has set.
    fn containers(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        Some(self.config.clone().or_else(home)?.join("containers"))
    }

    /// The folders in which podman and docker keep certificates by registry, the user's own first.
    pub(crate) fn certificate_folders(&self) -> Vec<PathBuf> {
        let own = self.containers().map(|folder| folder.join("certs.d"));
        let shared = ["/etc/containers/certs.d", "/etc/docker/certs.d"].map(PathBuf::from);
        own.into_iter().chain(shared).collect()
    }

    /// The files in which podman keeps mirrors. Of the main ones the user's own stands in for the system's; folders hold more, the last one counting.
    pub(crate) fn mirror_files(&self) -> Files {
        if let Some(file) = &self.registries_conf {
            return Files::Named(file.clone());
        }
        let own = self.containers();
        let system = PathBuf::from("/etc/containers");
        let main = own.iter().chain([&system]);
        let folders = [&system].into_iter().chain(&own);
        Files::FirstAndFolders {
            first: main.map(|folder| folder.join("registries.conf")).collect(),
            folders: folders
                .map(|folder| folder.join("registries.conf.d"))
                .collect(),
        }
    }

    /// Where a password comes from: standard input if asked for, else the environment, else a prompt.
    pub(crate) fn password_source(&self, stdin: bool) -> Source {
        match &self.password {
            _ if stdin => Source::Stdin,
            Some(password) => Source::Given(password.clone().into()),
            None => Source::Prompt,
        }
    }
}
