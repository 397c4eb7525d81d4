//! One call of `go build`: module, package, link flags, and errors with hints if Go is missing or
//! too old. `cache` stores the result.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sha2::{Digest, Sha256};

use super::{ServerVersion, Tool};
use crate::host::janitor::Janitor;
use crate::host::prerequisites::{self, RequiredProgram};
use crate::host::process::Process;

/// Interval of progress messages during a build.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);
/// Commit and time in the Kubernetes programs. These values are constant, so that the same input
/// produces the same bytes.
const BUILD_DATE: &str = "2026-01-01T00:00:00Z";
const BUILD_COMMIT: &str = "0000000000000000000000000000000000000000";

/// Inputs of a build.
pub(super) struct Recipe {
    pub(super) tool: Tool,
    version: Option<ServerVersion>,
    link_flags: String,
    folder: PathBuf,
    go: String,
}

impl Recipe {
    pub(super) fn new(tool: Tool, version: Option<&ServerVersion>) -> Result<Self> {
        let folder = family_folder(tool);
        let version = match version {
            _ if !tool.is_kubernetes() => None,
            Some(version) => Some(version.clone()),
            None => Some(module_version(&folder)?),
        };
        let link_flags = link_flags(version.as_ref());
        Ok(Self {
            tool,
            version,
            link_flags,
            folder,
            go: go_version(tool)?,
        })
    }

    /// Returns the cache key of the build: sources, flags, compiler, platform.
    pub(super) fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            hash.update(fs_err::read(self.folder.join(file))?);
        }
        // Some tools are short programs of this repository that call a library.
        let own = self.folder.join("main.go");
        if own.exists() {
            hash.update(fs_err::read(own)?);
        }
        for part in [self.tool.package(), &self.link_flags, &self.go] {
            hash.update(part);
            hash.update([0]);
        }
        Ok(hex::encode(&hash.finalize()[..8]))
    }

    /// Builds the program to `out`, and prints progress to stderr.
    pub(super) fn build(&self, out: &Path, janitor: &Janitor) -> Result<()> {
        let what = match &self.version {
            Some(version) => format!("{} {version}", self.tool),
            None => self.tool.to_string(),
        };
        eprintln!(
            "tools: building {what} from its Go module, once per user (up to about {} s on two cores)",
            self.tool.cold_seconds()
        );
        let log = out.with_extension("log");
        let began = Instant::now();
        let mut command = Command::new("go");
        command
            .current_dir(&self.folder)
            .env("CGO_ENABLED", "0")
            .env_remove("GOFLAGS")
            .envs(out.parent().map(|scratch| ("GOTMPDIR", scratch)))
            .args(["build", "-buildvcs=false", "-trimpath", "-mod=readonly"])
            .args(["-ldflags", &self.link_flags, "-o"])
            .arg(out)
            .arg(self.tool.package());
        let mut process = Process::start("go build", command, &log, janitor)?;
        let mut told = began;
        let status = loop {
            if let Some(status) = process.ended()? {
                break status;
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                eprintln!(
                    "tools: still building {what} ({} s)",
                    began.elapsed().as_secs()
                );
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        if !status.success() {
            return Err(failure(
                self.tool,
                &fs_err::read_to_string(&log).unwrap_or_default(),
            ));
        }
        eprintln!(
            "tools: built {what} in {:.0} s",
            began.elapsed().as_secs_f64()
        );
        Ok(())
    }
}

/// Returns the folder of the Go module that `tool` is built from.
pub(super) fn family_folder(tool: Tool) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tools")
        .join(tool.family())
}

fn link_flags(version: Option<&ServerVersion>) -> String {
    let mut flags = vec!["-s -w".to_owned()];
    if let Some(version) = version {
        let major = version.major().to_string();
        let minor = version.minor().to_string();
        let values = [
            ("gitVersion", version.as_str()),
            ("gitMajor", &major),
            ("gitMinor", &minor),
            ("gitTreeState", "clean"),
            ("gitCommit", BUILD_COMMIT),
            ("buildDate", BUILD_DATE),
        ];
        flags.extend(
            values.map(|(name, value)| format!("-X k8s.io/component-base/version.{name}={value}")),
        );
    }
    flags.join(" ")
}

/// Returns the version of `k8s.io/kubernetes` that the module of `tool` requires.
#[cfg(test)]
pub(super) fn module_version_of(tool: Tool) -> Result<ServerVersion> {
    module_version(&family_folder(tool))
}

/// Returns the version of `k8s.io/kubernetes` that the module requires.
fn module_version(folder: &Path) -> Result<ServerVersion> {
    let path = folder.join("go.mod");
    let text = fs_err::read_to_string(&path)?;
    text.lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix("k8s.io/kubernetes ")
        })
        .find_map(|rest| rest.split_whitespace().next())
        .with_context(|| format!("{} requires no k8s.io/kubernetes", path.display()))?
        .parse()
}

/// Returns compiler version and target from `go env`; cached for the process.
fn go_version(tool: Tool) -> Result<String> {
    static VERSION: OnceLock<String> = OnceLock::new();
    if let Some(known) = VERSION.get() {
        return Ok(known.clone());
    }
    let output = Command::new("go")
        .current_dir(family_folder(tool))
        .args(["env", "GOVERSION", "GOOS", "GOARCH"])
        .output()
        .map_err(|error: io::Error| prerequisites::explain(RequiredProgram::Go, &error))?;
    if !output.status.success() {
        return Err(failure(tool, &String::from_utf8_lossy(&output.stderr)));
    }
    let text = String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    if text.is_empty() {
        bail!("`go env` printed nothing");
    }
    Ok(VERSION.get_or_init(|| text).clone())
}

/// Returns an error with the last lines of `go`'s output, and hints for frequent causes.
fn failure(tool: Tool, log: &str) -> anyhow::Error {
    let lines: Vec<_> = log
        .lines()
        .filter(|line| !line.starts_with("go: downloading"))
        .collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n");
    let hint = if tail.contains("requires go >=") {
        "\nhint: this Go is too old. Install the required version or a newer one, or allow Go to download it: `go env -w GOTOOLCHAIN=auto`."
    } else if tail.contains("dial tcp") || tail.contains("lookup ") {
        "\nhint: the modules come from the Go module proxy (`go env GOPROXY`), which did not respond. To use another proxy, set GOPROXY."
    } else if tail.contains("no space left") {
        "\nhint: building all tools takes about 13 GB in Go's caches (`go env GOCACHE GOMODCACHE`) and 1 GB for the results."
    } else {
        ""
    };
    anyhow!("`go build` of {tool} failed:\n{tail}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_version_is_the_version_of_the_sources() {
        let version = module_version(&family_folder(Tool::KubeApiserver)).unwrap();
        assert_eq!(version.major(), 1);
        assert!(version.minor() >= 36);
        assert!(link_flags(Some(&version)).contains(&format!("gitVersion={version} ")));
        assert_eq!(link_flags(None), "-s -w");
    }

    #[test]
    fn build_failure_shows_log_tail_and_hint() {
        let log = "go: downloading a v1\ngo: go.mod requires go >= 1.26.0 (running go 1.22.1; GOTOOLCHAIN=local)\n";
        let text = failure(Tool::Etcd, log).to_string();
        assert!(
            text.starts_with("`go build` of etcd failed:\ngo: go.mod requires"),
            "{text}"
        );
        assert!(text.contains("hint: this Go is too old"), "{text}");
    }
}
