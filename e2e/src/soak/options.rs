//! Parameters, proportions of the actions, and report of a soak test.

use std::fmt;
use std::time::Duration;

/// Proportions of the random actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SoakMix {
    /// Most actions change installed objects.
    Drift,
    /// Most actions kill the webhook, or install, upgrade, roll back or remove deployments.
    Kills,
}

impl SoakMix {
    /// Returns the actions with their weights.
    pub(super) fn actions(self) -> &'static [(Action, u32)] {
        match self {
            Self::Drift => &[
                (Action::Kill, 8),
                (Action::InstallOrRemove, 12),
                (Action::Upgrade, 30),
                (Action::RollBack, 10),
                (Action::CreateUnmanaged, 15),
                (Action::Change, 925),
            ],
            Self::Kills => &[
                (Action::Kill, 20),
                (Action::InstallOrRemove, 8),
                (Action::Upgrade, 30),
                (Action::RollBack, 25),
                (Action::CreateUnmanaged, 2),
                (Action::Change, 15),
            ],
        }
    }
}

/// Random action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Kills the webhook with SIGKILL and starts it again.
    Kill,
    /// Removes an installed package, or installs a removed package.
    InstallOrRemove,
    /// Writes the template of a random revision.
    Upgrade,
    /// Runs `kubectl bundle rollback`.
    RollBack,
    /// Creates an object that no bundle contains.
    CreateUnmanaged,
    /// Changes an installed object.
    Change,
}

/// Parameters of a soak test.
#[derive(Debug, Clone, Copy)]
pub struct SoakOptions {
    /// Proportions of the actions.
    pub mix: SoakMix,
    /// Seed of all random choices. The same seed does not repeat the timing of the cluster.
    pub seed: u64,
    /// Time after which no further round starts, if the minimum number of kills is reached.
    pub duration: Duration,
    /// Minimum number of kills of the webhook.
    pub min_kills: u32,
    /// Duration of the disturbances in one round.
    pub round: Duration,
    /// Number of installed packages.
    pub packages: usize,
}

/// Report of a soak test in which all rounds converged.
#[derive(Debug, Default, Clone)]
pub struct SoakReport {
    /// Number of rounds.
    pub rounds: u32,
    /// Number of changes of objects.
    pub changes: u32,
    /// Number of upgrades and downgrades.
    pub upgrades: u32,
    /// Number of rollbacks.
    pub rollbacks: u32,
    /// Number of removed or reinstalled deployments.
    pub removals: u32,
    /// Number of kills of the webhook.
    pub kills: u32,
    /// Time from the last action of each round to convergence.
    pub convergence: Vec<Duration>,
}

impl fmt::Display for SoakReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = self.convergence.iter().max().copied().unwrap_or_default();
        write!(
            formatter,
            "{} rounds converged, the longest after {:.1} s: {} changes, {} upgrades, {} rollbacks, {} removals and reinstallations, {} kills",
            self.rounds,
            longest.as_secs_f64(),
            self.changes,
            self.upgrades,
            self.rollbacks,
            self.removals,
            self.kills,
        )
    }
}
