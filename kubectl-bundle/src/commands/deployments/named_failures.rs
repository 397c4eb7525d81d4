//! Failures of verbs that change several BundleDeployments.

use crate::cluster::Cluster;
use crate::cluster::wait::Wait;
use crate::commands::deployments::state::prediction::Goal;
use crate::commands::deployments::state::waiting;
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

/// A BundleDeployment that a verb deleted.
pub(super) struct Deleted<'a> {
    pub(super) name: &'a str,
    /// Effect of the deletion on the installed objects, for the end of the message `NAME is gone…`.
    pub(super) consequence: &'static str,
    /// The failure that the status reported before the deletion.
    pub(super) known_failure: Option<String>,
}

impl NamedFailures {
    /// Returns an empty record of failures for a verb with these names.
    pub(super) fn new(names: &[String]) -> Self {
        Self {
            has_several_names: names.len() > 1,
            has_failed: false,
        }
    }

    /// Returns the value of `outcome`, the result for the BundleDeployment `name`. With several
    /// names, prints a failure and returns `None`. With one name, returns the failure.
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

    /// Waits until the BundleDeployments no longer exist. All waits share the timeout of `wait`.
    pub(super) async fn wait_until_gone(
        &mut self,
        ui: &mut Ui,
        cluster: &Cluster,
        wait: Wait,
        deleted: &[Deleted<'_>],
    ) -> Outcome {
        let wait = wait.shared();
        for Deleted {
            name,
            consequence,
            known_failure,
        } in deleted
        {
            let known = known_failure.as_deref();
            let outcome = waiting::wait_until(ui, cluster, name, Goal::Deleted, wait, known).await;
            if self.check(ui, name, outcome)?.is_some() {
                ui.note(format!("{name} is gone{consequence}"));
            }
        }
        Ok(())
    }

    /// Returns a failure with exit code 1 if the failure of at least one name was printed.
    pub(super) fn finish(self) -> Outcome {
        if self.has_failed {
            return Err(Failure::Reported(Exit::Failed));
        }
        Ok(())
    }
}
