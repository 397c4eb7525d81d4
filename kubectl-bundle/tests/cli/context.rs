//! Test context: a folder, a clean environment, and replacements for output that differs between
//! runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bundle_testkit::registry::Registry;
use tokio::runtime::Runtime;

/// Context of one test.
pub(crate) struct Context {
    folder: tempfile::TempDir,
    runtime: Runtime,
    variables: Vec<(String, String)>,
    replaced: Vec<(String, String)>,
}

/// `bundle.yaml` of a bundle called web.
pub(crate) const PACKAGE: &str = "\
apiVersion: bundle.core.rukpak.io/v1alpha1
kind: Package
name: web
version: 1.4.0
format: plain+v0
description: A small web page
kubernetes: {supported: \">=1.31 <1.38\"}
";

/// Manifest of the bundle: a ConfigMap.
pub(crate) const CONFIG_MAP: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: default}
data: {greeting: hello}
";

impl Context {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        Self {
            replaced: vec![(path, "[DIR]".to_owned())],
            folder,
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .unwrap(),
            variables: Vec::new(),
        }
    }

    /// Adds an environment variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a bundle in the folder `web`.
    pub(crate) fn with_bundle(self) -> Self {
        self.write("web/bundle.yaml", PACKAGE);
        self.write("web/manifests/web.yaml", CONFIG_MAP);
        self
    }

    /// Returns the current folder of the program.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file.
    pub(crate) fn write(&self, path: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    /// Replaces a text that differs between runs. Snapshots contain `name` instead.
    pub(crate) fn replace(&mut self, text: String, name: &str) {
        self.replaced.push((text, name.to_owned()));
    }

    /// Starts a registry in this process.
    pub(crate) fn registry(&mut self) -> Registry {
        let registry = self.runtime.block_on(Registry::without_faults()).unwrap();
        self.replace(registry.host(), "[REGISTRY]");
        registry
    }

    /// Returns the runtime for servers of a test.
    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Returns the command for the program.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubectl-bundle"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .env("HOME", self.path().join("home"))
            .env("TZ", "UTC")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs the program and returns exit code, stdout and stderr.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        self.finish(&mut self.command(arguments))
    }

    /// Runs a command and returns exit code, stdout and stderr.
    pub(crate) fn finish(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        self.normalize(&format!(
            "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
            output.status.code().unwrap(),
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        ))
    }

    /// Returns only stdout of a successful run.
    pub(crate) fn stdout(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    /// Shortens digests, and applies [`replace`](Self::replace).
    fn normalize(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (from, to) in &self.replaced {
            text = text.replace(from, to);
        }
        let mut calm = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find("sha256:") {
            let (before, digest) = rest.split_at(at);
            let end = digest[7..]
                .find(|c: char| !c.is_ascii_hexdigit())
                .map_or(digest.len(), |length| length + 7);
            calm.push_str(before);
            if end == 7 + 64 {
                calm.push_str(&digest[..7 + 8]);
                calm.push_str("...");
            } else {
                calm.push_str(&digest[..end]);
            }
            rest = &digest[end..];
        }
        calm.push_str(rest);
        calm
    }
}
