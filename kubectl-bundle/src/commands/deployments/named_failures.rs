//! Failures of verbs that change several BundleDeployments.

use crate::failure::exit::Exit;
use crate::failure::{Failure, Outcome};
use crate::ui::Ui;

/// Failures of a verb with one or several names.
///
/// With several names, a failure is printed, and the verb continues with the next name. With one
/// name, the failure ends the verb, so the verb keeps the exit code of this failure.
pub(super) struct NamedFailures {
    has_several_names: bool,
    has_failed: bool,
}

impl NamedFailures {
    /// Returns no failures, for the names on the command line.
    pub(super) fn new(names: &[String]) -> Self {
        Self {
            has_several_names: names.len() > 1,
            has_failed: false,
        }
    }

    /// Returns the value of `outcome`, which belongs to the BundleDeployment `name`. Returns `None`
    /// if the failure was printed.
    pub(super) fn check<T>(
        &mut self,
        ui: &mut Ui,
        name: &str,
        outcome: Outcome<T>,
    ) -> Outcome<Option<T>> {
        match outcome {
            Ok(value) => Ok(Some(value)),
            Err(failure) if self.has_several_names => {
                ui.failure(&failure.about("bundledeployment", name));
                self.has_failed = true;
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    /// Returns exit code 1 if a failure was printed.
    pub(super) fn finish(self) -> Outcome {
        if self.has_failed {
            return Err(Failure::Reported(Exit::Failed));
        }
        Ok(())
    }
}
