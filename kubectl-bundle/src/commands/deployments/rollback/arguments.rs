//! Arguments of `rollback`.

use clap::Args;

use super::Rollback;
use crate::commands::deployments::arguments::{WaitFlag, WriteFlags};
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment};

/// Install a former revision: write its template and configuration into the BundleDeployment.
///
/// Without --to, the command selects the revision before the current template. While new content is
/// not installed completely, the command selects the content that is still installed. The write
/// needs your permissions, like every other write. `kubectl bundle history` lists the revisions.
///
/// The command also restores the configuration (spec.config) with which the content was last
/// installed. All other settings keep their values.
///
/// The command changes the spec. No field of the API requests a rollback. If a GitOps tool writes
/// the BundleDeployment, revert the commit in its repository instead: the tool would overwrite the
/// change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Roll back to the previous revision, and wait until it is installed
  kubectl bundle rollback web --wait

  # Install revision 2 again
  kubectl bundle rollback web --to 2

  # Print the change only
  kubectl bundle rollback web --dry-run=server")]
pub(crate) struct Arguments {
    /// Name of the BundleDeployment
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Revision: a number, or the name of its Bundle [default: the previous revision]
    #[arg(long, visible_alias = "to-revision", value_name = "REVISION")]
    pub(crate) to: Option<String>,
    /// Keep the current configuration instead of the configuration of the revision
    #[arg(long)]
    pub(crate) keep_config: bool,
    /// Wait until the content is installed or, with --wait=healthy, until its objects are healthy
    /// too
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, value_enum, default_value_t = WaitFlag::False, default_missing_value = "true")]
    pub(crate) wait: WaitFlag,
    /// Flags of writes.
    #[command(flatten)]
    pub(crate) write: WriteFlags,
    /// Cluster flags.
    #[command(flatten)]
    pub(crate) kube: ClusterFlags,
}

impl Arguments {
    /// Returns the settings of `rollback`.
    pub(crate) fn settings(self, environment: &Environment) -> Outcome<Rollback> {
        let (waits, goal) = self.wait.goal();
        Ok(Rollback {
            name: self.name,
            to: self.to,
            keep_config: self.keep_config,
            goal,
            write: self.write.settings(waits, self.kube, environment)?,
        })
    }
}
