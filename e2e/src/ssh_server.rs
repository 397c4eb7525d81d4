//! OpenSSH server with its own keys, which serves the git repositories of a folder.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command as StdCommand;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::host::command::Command;
use crate::host::packages;
use crate::host::ports;
use crate::host::prerequisites::RequiredProgram;
use crate::host::process::Process;
use crate::wait;

const READY: Duration = Duration::from_secs(90);
/// Folder that sshd requires if it runs as root.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

/// Running server; it ends when dropped.
pub struct SshServer {
    folder: PathBuf,
    user: String,
    address: SocketAddr,
    log: PathBuf,
    process: Process,
}

impl SshServer {
    /// Starts a server on loopback that accepts one key for the user of this process. The files of
    /// the server are in the folder `name` of the cluster.
    pub async fn start(cluster: &Cluster, name: &str) -> Result<Self> {
        Self::start_on(cluster, name, Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts a server as [`Self::start`] does, on an address of this machine, for example an
    /// address that Pods of a node can connect to.
    pub async fn start_on(cluster: &Cluster, name: &str, address: IpAddr) -> Result<Self> {
        packages::ensure(&[RequiredProgram::Sshd, RequiredProgram::Git])?;
        let folder = cluster.folder().join("data").join(name);
        fs_err::create_dir_all(&folder)?;
        if rustix::process::geteuid().is_root() {
            fs_err::create_dir_all(PRIVILEGE_SEPARATION)?;
        }
        let user = Command::new("id").args(["-un"]).output().await?;
        let user = user.success()?.trim().to_owned();
        for key in ["host", "user"] {
            new_key(&folder, key).await?;
        }
        let address = SocketAddr::from((address, ports::free()?));
        let (ip, port) = (address.ip(), address.port());
        let place = folder.display();
        let settings = format!(
            "ListenAddress {ip}\nPort {port}\nHostKey {place}/host\nAuthorizedKeysFile {place}/user.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nPidFile none\nAcceptEnv GIT_PROTOCOL\n"
        );
        let file = folder.join("sshd_config");
        fs_err::write(&file, settings)?;
        let mut command = StdCommand::new(RequiredProgram::Sshd.name());
        command.arg("-D").arg("-e").arg("-f").arg(&file);
        let log = cluster.logs().join(format!("{name}.log"));
        let process = Process::start("sshd", command, &log, cluster.janitor())?;
        let server = Self {
            folder,
            user,
            address,
            log,
            process,
        };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let address = self.address;
        let listens = || async move { Ok(TcpStream::connect(address).await.is_ok()) };
        wait::until_true(READY, "sshd listens", listens)
            .await
            .with_context(|| self.process.log_tail())
    }

    /// Starts the server again with another host key.
    pub async fn change_host_key(&mut self) -> Result<()> {
        self.process.kill()?;
        new_key(&self.folder, "host").await?;
        self.process.start_again()?;
        self.wait_until_ready().await
    }

    /// Returns the number of logins so far.
    pub fn logins(&self) -> Result<usize> {
        let log = fs_err::read_to_string(&self.log)?;
        Ok(log.matches("Accepted publickey for ").count())
    }

    /// Returns the folder for repositories.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the URL of the repository in the folder `name`.
    pub fn url(&self, name: &str) -> String {
        let path = self.folder.join(name);
        format!("ssh://{}@{}{}", self.user, self.address, path.display())
    }

    /// Returns the private key that the server accepts.
    pub fn private_key(&self) -> Result<String> {
        Ok(fs_err::read_to_string(self.folder.join("user"))?)
    }

    /// Returns the line of known_hosts with the host key.
    pub fn known_hosts(&self) -> Result<String> {
        let key = fs_err::read_to_string(self.folder.join("host.pub"))?;
        let (ip, port) = (self.address.ip(), self.address.port());
        Ok(format!("[{ip}]:{port} {key}"))
    }
}

async fn new_key(folder: &Path, name: &str) -> Result<()> {
    for old in [name.to_owned(), format!("{name}.pub")] {
        fs_err::remove_file(folder.join(old)).ok();
    }
    let file = folder.join(name).display().to_string();
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", &file])
        .output()
        .await?;
    made.success()?;
    Ok(())
}
