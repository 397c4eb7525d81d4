//! Shell process that survives this process. After this process has ended for any reason, the shell
//! kills the started programs and removes the folder. If a program ends regularly, `process`
//! informs the janitor.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};

/// Shell script of the janitor. The script reads commands from a pipe, and cleans up after the pipe
/// is closed. Only this process has the write end of the pipe. When this process ends, the kernel
/// closes the pipe.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
groups=''
rubbish=$1
last=:
while read -r verb what; do
  case $verb in
    watch) groups="$groups -$what" ;;
    forget) left=''
      for group in $groups; do [ "$group" = "-$what" ] || left="$left $group"; done
      groups=$left ;;
    spare) rubbish=$1/data ;;
    last) last=$what ;;
  esac
done
eval "$last" >/dev/null 2>&1
[ -z "$groups" ] || kill -s KILL -- $groups 2>/dev/null
rm -rf -- "$rubbish" && exit
sleep 1
rm -rf -- "$rubbish"
"#;

/// Handle of a janitor. Clones of the handle refer to the same janitor. Cleanup begins when the
/// last handle is dropped.
#[derive(Clone)]
pub(crate) struct Janitor(Arc<Mutex<Shell>>);

struct Shell {
    child: Child,
    orders: Option<ChildStdin>,
}

impl Janitor {
    /// Starts a janitor for `folder`. After this process has ended, the janitor removes `folder`,
    /// or only `folder/data` if the logs are kept.
    pub(crate) fn start(folder: &Path) -> Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "janitor"])
            .arg(folder)
            // Ctrl-C ends the process group of the terminal. The janitor has its own group, because
            // it must continue.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start `sh`, which cleans up after this process")?;
        let orders = child.stdin.take();
        Ok(Self(Arc::new(Mutex::new(Shell { child, orders }))))
    }

    /// Registers the process group of `pid` to be killed when this process ends.
    pub(crate) fn watch(&self, pid: u32) -> Result<()> {
        self.order(&format!("watch {pid}"))
    }

    /// Removes `pid` from the processes to kill. The process was reaped, so the kernel may reuse
    /// `pid`.
    pub(crate) fn forget(&self, pid: u32) -> Result<()> {
        self.order(&format!("forget {pid}"))
    }

    /// Keeps the logs after this process has ended.
    pub(crate) fn keep_logs(&self) -> Result<()> {
        self.order("spare logs")
    }

    /// Runs a shell command line after this process has ended, before processes are killed. The
    /// command line removes objects that are not in the folder, such as objects of a cluster or
    /// cgroups. A later command line replaces an earlier one.
    pub(crate) fn at_the_end(&self, line: &str) -> Result<()> {
        self.order(&format!("last {line}"))
    }

    fn order(&self, line: &str) -> Result<()> {
        let mut shell = self.shell();
        let pipe = shell
            .orders
            .as_mut()
            .context("the janitor has been dismissed")?;
        writeln!(pipe, "{line}")
            .context("the janitor, which cleans up after this process, has ended")
    }

    fn shell(&self) -> MutexGuard<'_, Shell> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.orders.take());
        if let Err(error) = self.child.wait() {
            eprintln!("e2e: cannot wait for the janitor: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_the_folder_but_keeps_logs_after_a_failure() {
        for spare in [false, true] {
            let root = tempfile::tempdir().unwrap().keep();
            fs_err::create_dir(root.join("data")).unwrap();
            fs_err::create_dir(root.join("logs")).unwrap();
            let janitor = Janitor::start(&root).unwrap();
            if spare {
                janitor.keep_logs().unwrap();
            }
            drop(janitor);
            assert!(!root.join("data").exists());
            assert_eq!(root.join("logs").exists(), spare);
            if spare {
                fs_err::remove_dir_all(&root).unwrap();
            }
        }
    }

    #[test]
    fn runs_the_cleanup_command_before_removing_the_folder() {
        let root = tempfile::tempdir().unwrap().keep();
        let elsewhere = tempfile::tempdir().unwrap();
        fs_err::write(root.join("it's there"), "yes").unwrap();
        let janitor = Janitor::start(&root).unwrap();
        let line = format!(
            r"cat '{}/it'\''s there' > '{}/copy'",
            root.display(),
            elsewhere.path().display()
        );
        janitor.at_the_end(&line).unwrap();
        drop(janitor);
        assert!(!root.exists());
        let copy = fs_err::read_to_string(elsewhere.path().join("copy"));
        assert_eq!(copy.unwrap(), "yes");
    }

    #[test]
    fn kills_watched_processes_when_the_pipe_closes() {
        let root = tempfile::tempdir().unwrap().keep();
        let sleep = || Command::new("sleep").arg("600").process_group(0).spawn();
        let (mut watched, mut forgotten) = (sleep().unwrap(), sleep().unwrap());
        let janitor = Janitor::start(&root).unwrap();
        janitor.watch(forgotten.id()).unwrap();
        janitor.watch(watched.id()).unwrap();
        janitor.forget(forgotten.id()).unwrap();
        drop(janitor);
        assert!(!watched.wait().unwrap().success());
        assert!(forgotten.try_wait().unwrap().is_none());
        forgotten.kill().unwrap();
        forgotten.wait().unwrap();
    }
}
