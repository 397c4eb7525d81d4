//! All environment variables and other properties of the process. They are read once at the start.

use std::env;
use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use crate::registry::ConfigFiles;
use crate::sigstore::TokenSource;
use crate::sigstore::root::Folders;
use crate::ui::password::PasswordSource;

/// Path of an identity token in a pod, as in cosign.
const TOKEN_FILE: &str = "/var/run/sigstore/cosign/oidc-token";
/// Default URL of Buildkite's agent API.
const BUILDKITE: &str = "https://agent.buildkite.com/v3";

/// Environment of the process.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about the environment"
)]
pub(crate) struct Environment {
    /// `NO_COLOR` is set and not empty.
    pub(crate) no_color: bool,
    /// `CLICOLOR_FORCE` is set and not 0.
    pub(crate) force_color: bool,
    /// `TERM` is `dumb`: the terminal does not support escape sequences.
    pub(crate) dumb_terminal: bool,
    /// Stdout is a terminal.
    pub(crate) stdout_is_terminal: bool,
    /// Stderr is a terminal.
    pub(crate) stderr_is_terminal: bool,
    /// Stdin is a terminal.
    stdin_is_terminal: bool,
    /// `CI` is set: no user is present.
    ci: bool,
    /// Files of `KUBECONFIG`.
    pub(crate) kubeconfig: Vec<PathBuf>,
    /// Folders of `PATH`.
    pub(crate) path: Vec<PathBuf>,
    /// Path of this program.
    pub(crate) program: PathBuf,
    /// Home folder.
    pub(crate) home: Option<PathBuf>,
    /// `true` if this process runs in a pod with a ServiceAccount.
    pub(crate) in_cluster: bool,
    /// `DOCKER_CONFIG`, `REGISTRY_AUTH_FILE`, `XDG_RUNTIME_DIR`.
    credentials: [Option<PathBuf>; 3],
    /// `XDG_CONFIG_HOME`.
    config: Option<PathBuf>,
    /// `XDG_CACHE_HOME`.
    cache: Option<PathBuf>,
    /// `CONTAINERS_REGISTRIES_CONF`.
    registries_conf: Option<PathBuf>,
    /// `SOURCE_DATE_EPOCH`: timestamp of builds.
    pub(crate) source_date: Option<String>,
    /// `BUNDLE_PASSWORD`, or else `COSIGN_PASSWORD`. An empty value is an empty password. `None` if
    /// both variables are unset.
    pub(crate) password: Option<String>,
    /// `KUBECTL_EXTERNAL_DIFF`: program for differences.
    pub(crate) external_diff: Option<String>,
    /// A display is available: `DISPLAY` or `WAYLAND_DISPLAY`.
    pub(crate) graphical: bool,
    /// Identity token from the environment.
    token: Option<TokenSource>,
}

fn text(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn non_empty(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the paths in a variable.
fn paths(name: &str) -> Vec<PathBuf> {
    let list = non_empty(name).unwrap_or_default();
    env::split_paths(&list)
        .filter(|path| !path.as_os_str().is_empty())
        .collect()
}

/// Returns the source of an identity token: an environment variable, the CI system, or `file` if it
/// exists.
fn token(text: &dyn Fn(&str) -> Option<String>, file: &Path) -> Option<TokenSource> {
    if let Some(token) = text("SIGSTORE_ID_TOKEN") {
        return Some(TokenSource::Environment(token.into()));
    }
    let github = text("ACTIONS_ID_TOKEN_REQUEST_URL").zip(text("ACTIONS_ID_TOKEN_REQUEST_TOKEN"));
    if let Some((url, token)) = github {
        return Some(TokenSource::GitHub {
            url,
            token: token.into(),
        });
    }
    let buildkite = text("BUILDKITE_AGENT_ACCESS_TOKEN").zip(text("BUILDKITE_JOB_ID"));
    if let Some((token, job)) = buildkite {
        return Some(TokenSource::Buildkite {
            endpoint: text("BUILDKITE_AGENT_ENDPOINT").unwrap_or_else(|| BUILDKITE.to_owned()),
            job,
            token: token.into(),
        });
    }
    file.is_file().then(|| TokenSource::File(file.to_owned()))
}

impl Environment {
    /// Reads the environment.
    pub(crate) fn read() -> Self {
        Self {
            no_color: non_empty("NO_COLOR").is_some(),
            force_color: non_empty("CLICOLOR_FORCE").is_some_and(|value| value != "0"),
            dumb_terminal: non_empty("TERM").is_some_and(|value| value == "dumb"),
            stdout_is_terminal: std::io::stdout().is_terminal(),
            stderr_is_terminal: std::io::stderr().is_terminal(),
            stdin_is_terminal: std::io::stdin().is_terminal(),
            ci: non_empty("CI").is_some_and(|value| value != "false" && value != "0"),
            kubeconfig: paths("KUBECONFIG"),
            path: paths("PATH"),
            program: env::current_exe().unwrap_or_else(|_| PathBuf::from("kubectl-bundle")),
            home: non_empty("HOME")
                .or_else(|| non_empty("USERPROFILE"))
                .map(PathBuf::from),
            in_cluster: non_empty("KUBERNETES_SERVICE_HOST").is_some(),
            credentials: ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR"]
                .map(|name| non_empty(name).map(PathBuf::from)),
            config: non_empty("XDG_CONFIG_HOME").map(PathBuf::from),
            cache: non_empty("XDG_CACHE_HOME").map(PathBuf::from),
            registries_conf: non_empty("CONTAINERS_REGISTRIES_CONF").map(PathBuf::from),
            source_date: non_empty("SOURCE_DATE_EPOCH")
                .map(|text| text.to_string_lossy().into_owned()),
            password: env::var("BUNDLE_PASSWORD")
                .or_else(|_| env::var("COSIGN_PASSWORD"))
                .ok(),
            external_diff: text("KUBECTL_EXTERNAL_DIFF"),
            graphical: non_empty("DISPLAY").is_some() || non_empty("WAYLAND_DISPLAY").is_some(),
            token: token(&text, Path::new(TOKEN_FILE)),
        }
    }

    /// Returns `true` if a user is present for a prompt.
    pub(crate) fn is_attended(&self) -> bool {
        self.stdin_is_terminal && self.stderr_is_terminal && !self.ci
    }

    /// Returns the source of an identity token in the environment, if there is one.
    pub(crate) fn token_source(&self) -> Option<TokenSource> {
        self.token.clone()
    }

    /// Returns the credential files of podman and docker. Files that environment variables name are
    /// first.
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

    /// Returns podman's configuration folder of the user.
    fn containers(&self) -> Option<PathBuf> {
        Some(self.config_folder()?.join("containers"))
    }

    fn config_folder(&self) -> Option<PathBuf> {
        let home = || self.home.as_ref().map(|home| home.join(".config"));
        self.config.clone().or_else(home)
    }

    /// Returns the folders for the choice of the TUF repository and its cached metadata.
    pub(crate) fn trust_folders(&self) -> Option<Folders> {
        let home = || self.home.as_ref().map(|home| home.join(".cache"));
        let folders = Folders {
            config: self.config_folder()?,
            cache: self.cache.clone().or_else(home)?,
        };
        // Relative folders are ignored, because files in the current folder are untrusted.
        let absolute = folders.config.is_absolute() && folders.cache.is_absolute();
        absolute.then_some(folders)
    }

    /// Returns the folders of podman and docker with certificates by registry. The folders of the
    /// user are first.
    pub(crate) fn certificate_folders(&self) -> Vec<PathBuf> {
        let own = self.containers().map(|folder| folder.join("certs.d"));
        let shared = ["/etc/containers/certs.d", "/etc/docker/certs.d"].map(PathBuf::from);
        own.into_iter().chain(shared).collect()
    }

    /// Returns podman's files with mirrors. The main file of the user replaces the main file of the
    /// system. The files in drop-in folders are read too, and the last entry has precedence.
    pub(crate) fn mirror_files(&self) -> ConfigFiles {
        if let Some(file) = &self.registries_conf {
            return ConfigFiles::Explicit(file.clone());
        }
        let own = self.containers();
        let system = PathBuf::from("/etc/containers");
        let main = own.iter().chain([&system]);
        let folders = [&system].into_iter().chain(&own);
        ConfigFiles::FirstAndFolders {
            first: main.map(|folder| folder.join("registries.conf")).collect(),
            folders: folders
                .map(|folder| folder.join("registries.conf.d"))
                .collect(),
        }
    }

    /// Returns the source of a password: standard input if `stdin` is set, else the environment,
    /// else a prompt.
    pub(crate) fn password_source(&self, stdin: bool) -> PasswordSource {
        match &self.password {
            _ if stdin => PasswordSource::Stdin,
            Some(password) => PasswordSource::Environment(password.clone().into()),
            None => PasswordSource::Prompt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_source_follows_the_order_of_precedence() {
        let folder = tempfile::tempdir().unwrap();
        let (here, nowhere) = (folder.path().join("token"), folder.path().join("none"));
        std::fs::write(&here, "token").unwrap();
        let found = |names: &[&str], file: &Path| {
            let text = |name: &str| names.contains(&name).then(|| "x".to_owned());
            // Debug output hides secrets.
            format!("{:?}", token(&text, file))
        };
        let github = [
            "ACTIONS_ID_TOKEN_REQUEST_URL",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
        ];
        let buildkite = ["BUILDKITE_AGENT_ACCESS_TOKEN", "BUILDKITE_JOB_ID"];
        let both = [github, buildkite].concat();
        let all = [&both[..], &["SIGSTORE_ID_TOKEN"]].concat();
        assert_eq!(found(&all, &here), "Some(Environment((secret)))");
        let by_github = r#"Some(GitHub { url: "x", token: (secret) })"#;
        assert_eq!(found(&both, &here), by_github);
        assert_eq!(
            found(&buildkite, &here),
            format!(r#"Some(Buildkite {{ endpoint: "{BUILDKITE}", job: "x", token: (secret) }})"#)
        );
        assert_eq!(found(&github[..1], &here), format!("Some(File({here:?}))"));
        assert_eq!(found(&[], &nowhere), "None");
    }
}
