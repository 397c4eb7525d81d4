//! Arguments of `__complete`.

use clap::Args;

use super::Complete;
use crate::failure::Outcome;
use crate::flags::{ClusterFlags, Environment};

/// Completion candidates for kubectl: called by `kubectl_complete-bundle`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Words after `kubectl bundle`. The last word is incomplete
    #[arg(
        value_name = "WORD",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<String>,
}

impl Arguments {
    /// Returns the settings of `__complete`.
    pub(crate) fn settings(
        self,
        environment: &Environment,
        root: clap::Command,
    ) -> Outcome<Complete> {
        let value = |flag: &str| {
            let at = self.words.iter().position(|word| word == flag)?;
            self.words.get(at + 1).cloned()
        };
        // These are the cluster flags on the command line that is completed.
        let kube = ClusterFlags {
            kubeconfig: value("--kubeconfig").map(Into::into),
            context: value("--context"),
            request_timeout: "2s".to_owned(),
            act_as: value("--as"),
            ..ClusterFlags::default()
        };
        Ok(Complete {
            root,
            cluster: kube.settings(environment)?,
            words: self.words,
        })
    }
}
