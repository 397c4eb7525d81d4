//! The process group of one command. On drop, all processes of the group are killed and reaped, and
//! then the resources of the command are released.

use std::io;
use std::process::ExitStatus;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitOptions, kill_process_group, test_kill_process_group, waitpgid,
};
use tokio::process::Child;
use tokio::runtime::Handle;

use super::UsedByProcess;

/// Interval at which ended processes of a killed group are reaped.
const REAP_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum number of attempts to reap a killed group. After these attempts, the resources of the
/// group are released even if a process still exists.
const REAP_LIMIT: u32 = 250;

/// A process group with the command as its leader. On drop, all processes of the group are killed,
/// including processes that run longer than the command.
pub(super) struct ProcessGroup {
    leader: Option<Child>,
    id: Option<Pid>,
    used: Option<UsedByProcess>,
}

impl ProcessGroup {
    /// Returns the process group of `leader`. `leader` must be the first process of the group.
    pub(super) fn new(leader: Child, used: UsedByProcess) -> Self {
        let id = leader.id().and_then(|id| i32::try_from(id).ok());
        Self {
            leader: Some(leader),
            id: id.and_then(Pid::from_raw),
            used: Some(used),
        }
    }

    pub(super) fn id(&self) -> Option<Pid> {
        self.id
    }

    /// Waits for the end of the leader.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        match &mut self.leader {
            Some(leader) => leader.wait().await,
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(id) = self.id else {
            return;
        };
        // The signal kills all processes of the group at the same time. Git, for example, would not
        // wait for the end of its child processes. An error means that no process exists any more.
        let is_killed = kill_process_group(id, Signal::KILL).is_ok();
        let (leader, used) = (self.leader.take(), self.used.take());
        if let (true, Ok(runtime)) = (is_killed, Handle::try_current()) {
            runtime.spawn(async move {
                if let Some(mut leader) = leader {
                    leader.wait().await.ok();
                }
                reap(id).await;
                drop(used);
            });
        }
    }
}

/// Reaps processes of a killed group until the group has no process. If the parent of a process has
/// ended, the webhook becomes its parent, because the webhook is PID 1 in a container. The function
/// reaps only processes of this group, and no other child process of the webhook.
async fn reap(id: Pid) {
    for _ in 0..REAP_LIMIT {
        while let Ok(Some(_)) = waitpgid(id, WaitOptions::NOHANG) {}
        if test_kill_process_group(id).is_err() {
            return;
        }
        tokio::time::sleep(REAP_INTERVAL).await;
    }
}
