//! Exit codes, which scripts rely on. `--help` prints the table of exit codes.

use std::process::ExitCode;

use bundle_core::diagnostic::Outcome;

/// Exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command succeeded.
    Done,
    /// The command failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// A rule rejected the input.
    Rejected,
    /// The result is unknown because a dependency did not respond. Retry later.
    Unknown,
    /// `diff` found differences.
    Different,
}

/// Table at the end of every help text.
pub(crate) const TABLE: &str = "\
Exit codes:
  0  done
  1  failed
  2  usage error
  3  rejected by a rule, a signature or the API server
  4  unknown: a dependency did not respond; retry later";

impl Exit {
    /// Returns the number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed | Self::Different => 1,
            Self::Usage => 2,
            Self::Rejected => 3,
            Self::Unknown => 4,
        }
    }
}

impl From<Outcome> for Exit {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Failed => Self::Failed,
            Outcome::Usage => Self::Usage,
            Outcome::Refused => Self::Rejected,
            Outcome::Unknown => Self::Unknown,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_every_exit_code() {
        for exit in [
            Exit::Done,
            Exit::Failed,
            Exit::Usage,
            Exit::Rejected,
            Exit::Unknown,
        ] {
            assert!(
                TABLE.contains(&format!("\n  {}  ", exit.code())),
                "{exit:?} is missing"
            );
        }
    }
}
