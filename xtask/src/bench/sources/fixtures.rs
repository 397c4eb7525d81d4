//! Content of the measurements: a repository with a long history, archives, an image, and many
//! small contents.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use e2e::Cluster;
use e2e::host::file_server::FileServer;
use e2e::ssh_server::SshServer;
use flate2::Compression;
use flate2::write::GzEncoder;
use rand::RngCore as _;
use serde_json::{Value, json};

use super::{NAMESPACE, Sizes};

/// Name of the Secret with the key of the SSH server.
const SECRET: &str = "bench-git";
/// Size in bytes of one file in an archive. The limit is 8 MiB.
const FILE: usize = 2 << 20;
const MIB: usize = 1 << 20;

/// Content of the measurements, and the servers that serve this content.
pub(super) struct Fixtures {
    pub(super) folder: PathBuf,
    pub(super) files: FileServer,
    pub(super) git: SshServer,
    registry: String,
}

impl Fixtures {
    /// Creates the content of single transfers, and starts the servers.
    pub(super) async fn new(cluster: &Cluster, sizes: Sizes) -> Result<Self> {
        let folder = cluster.folder().join("bench");
        let served = folder.join("files");
        fs_err::create_dir_all(&served)?;
        let git = SshServer::start(cluster, "bench-git").await?;
        let fixtures = Self {
            files: FileServer::start(served).await?,
            registry: cluster.registry(0)?.host(),
            git,
            folder,
        };
        fixtures.write_history(sizes)?;
        let archive = archive("large", sizes.archive * MIB)?;
        fs_err::write(fixtures.file("large.tgz"), archive)?;
        Ok(fixtures)
    }

    /// Returns the path of a served file.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join("files").join(name)
    }

    /// Writes a registries.conf that allows plain HTTP to the file server, and returns its path.
    pub(super) fn registries_conf(&self) -> Result<String> {
        let host = self.files.url();
        let host = host.trim_start_matches("http://");
        let file = self.folder.join("registries.conf");
        let text = format!("[[registry]]\nlocation = \"{host}\"\ninsecure = true\n");
        fs_err::write(&file, text)?;
        Ok(file.display().to_string())
    }

    /// Returns the Secret of git sources.
    pub(super) fn secret(&self) -> Result<Value> {
        Ok(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "stringData": {
                "ssh-privatekey": self.git.private_key()?,
                "ssh-knownhosts": self.git.known_hosts()?,
            },
        }))
    }

    pub(super) fn git_source(&self, repository: &str, directory: &str) -> Value {
        json!({"type": "git", "git": {
            "repository": self.git.url(repository), "directory": directory,
            "ref": {"branch": "main"}, "auth": {"secret": {"name": SECRET}},
        }})
    }

    pub(super) fn http_source(&self, name: &str) -> Value {
        let url = format!("{}/{name}", self.files.url());
        json!({"type": "http", "http": {"url": url}})
    }

    pub(super) fn image_source(&self, name: &str) -> Value {
        json!({"type": "image", "image": {"ref": format!("{}/{name}", self.registry)}})
    }

    /// Writes a bare repository `large` with `sizes.commits` commits. Each commit changes one file.
    /// The history has `sizes.history` MiB, but the last commit has only a few files.
    fn write_history(&self, sizes: Sizes) -> Result<()> {
        let target = self.git.folder().join("large.git");
        git(
            &["init", "--quiet", "--bare", "--initial-branch=main"],
            &target,
        )?;
        let mut import = Command::new("git")
            .args(["fast-import", "--quiet"])
            .current_dir(&target)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start git, which writes the repository")?;
        let mut input = import.stdin.take().context("git has no standard input")?;
        let mut blob = vec![0; sizes.history * MIB / sizes.commits.max(1)];
        for number in 1..=sizes.commits {
            rand::rng().fill_bytes(&mut blob);
            let message = format!("commit {number}");
            writeln!(input, "commit refs/heads/main")?;
            writeln!(input, "committer bench <bench@example.com> {number} +0000")?;
            write!(input, "data {}\n{message}\n", message.len())?;
            let object = object("large");
            for (path, bytes) in [
                ("docs/history.bin", &blob[..]),
                ("manifests/all.yaml", object.as_bytes()),
            ] {
                write!(input, "M 100644 inline {path}\ndata {}\n", bytes.len())?;
                input.write_all(bytes)?;
                writeln!(input)?;
            }
        }
        drop(input);
        let status = import.wait().context("cannot wait for git")?;
        ensure!(status.success(), "git fast-import ended with {status}");
        Ok(())
    }

    /// Writes a bare repository `many` with one small bundle in each folder `0`, `1`, ….
    pub(super) fn write_folders(&self, count: usize) -> Result<()> {
        let work = self.folder.join("many");
        git(&["init", "--quiet", "--initial-branch=main"], &work)?;
        for number in 0..count {
            let folder = work.join(number.to_string()).join("manifests");
            fs_err::create_dir_all(&folder)?;
            fs_err::write(folder.join("all.yaml"), object(&format!("git-{number}")))?;
        }
        git(&["add", "--all"], &work)?;
        let name = [
            "-c",
            "user.name=bench",
            "-c",
            "user.email=bench@example.com",
        ];
        let commit = [&name[..], &["commit", "--quiet", "-m", "bundles"]].concat();
        git(&commit, &work)?;
        let target = self.git.folder().join("many.git");
        let (work, target) = (work.display().to_string(), target.display().to_string());
        git(
            &["clone", "--quiet", "--bare", &work, &target],
            self.git.folder(),
        )
    }
}

/// Runs git in `folder`, which is created.
fn git(arguments: &[&str], folder: &Path) -> Result<()> {
    fs_err::create_dir_all(folder)?;
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .context("cannot start git")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {arguments:?}: {stderr}");
    Ok(())
}

/// Returns a ConfigMap.
pub(super) fn object(name: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, namespace: default}}\n")
}

/// Returns a gzipped tar that contains a ConfigMap and files with random data. The files have
/// `bytes` bytes in total.
pub(super) fn archive(name: &str, bytes: usize) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
    let mut append = |path: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, path, bytes)
    };
    append("manifests/all.yaml", object(name).as_bytes())?;
    let mut left = bytes;
    let mut data = vec![0; FILE];
    for number in 0_usize.. {
        if left == 0 {
            break;
        }
        let data = &mut data[..left.min(FILE)];
        left -= data.len();
        rand::rng().fill_bytes(data);
        // Names of different archives differ, so that they can be layers of one image.
        append(&format!("data/{name}-{number}"), data)?;
    }
    Ok(tar.into_inner()?.finish()?)
}
