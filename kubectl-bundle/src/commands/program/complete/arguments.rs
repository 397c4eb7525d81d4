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
        let value = |flag| flag_value(&self.words, flag);
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

/// Returns the value of a flag in the words: `--flag VALUE` or `--flag=VALUE`.
fn flag_value(words: &[String], flag: &str) -> Option<String> {
    words.iter().enumerate().find_map(|(at, word)| {
        let rest = word.strip_prefix(flag)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.to_owned()),
            None if rest.is_empty() => words.get(at + 1).cloned(),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_cluster_flags_in_both_forms() {
        let words: Vec<String> = ["get", "--context=a", "--contexts", "x", "--as", "ana"]
            .map(str::to_owned)
            .into();
        assert_eq!(flag_value(&words, "--context").as_deref(), Some("a"));
        assert_eq!(flag_value(&words, "--as").as_deref(), Some("ana"));
        assert_eq!(flag_value(&words, "--kubeconfig"), None);
    }
}
