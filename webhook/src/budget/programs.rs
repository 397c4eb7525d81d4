//! Memory that only external programs use.

use super::{DEFAULT_LIMIT, MIB};

/// Maximum memory of all processes of one command of git, in bytes.
pub const GIT_COMMAND: u64 = 32 * MIB;
/// Number of commands of git for which the pod must have memory. With two commands, the command of
/// one requester can run while the command of another requester waits for a slow server.
pub const GIT_COMMANDS: u64 = 2;
/// Memory of all commands of git that run at the same time, in bytes.
const GIT_MEMORY: u64 = GIT_COMMAND * GIT_COMMANDS;
/// Maximum private memory of helm, in bytes. Go allocates memory in steps of 64 MiB. The used
/// memory is lower: 63 MiB for an output of 7 MiB, and 20 MiB for an output of 1 MiB.
pub const HELM: u64 = 160 * MIB;

/// The external programs that the image contains.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExternalPrograms {
    /// git, for git sources.
    pub git: bool,
    /// helm, for charts.
    pub helm: bool,
}

/// Memory that only external programs use, in bytes. Content cannot use this memory, so content of
/// one requester does not delay git sources and charts of other requesters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProgramMemory {
    pub(super) git: u64,
    pub(super) helm: u64,
}

impl ProgramMemory {
    /// Returns the memory of each program in `programs`. A program gets no memory if the rest of
    /// `limit` would be less than [`DEFAULT_LIMIT`]. git has precedence.
    pub(super) fn new(limit: u64, programs: ExternalPrograms) -> Self {
        let rest = limit.saturating_sub(DEFAULT_LIMIT);
        let git = GIT_MEMORY * u64::from(programs.git && rest >= GIT_MEMORY);
        let rest = rest - git;
        let helm = HELM * u64::from(programs.helm && rest >= HELM);
        Self { git, helm }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_get_memory_only_beyond_the_default_limit() {
        let all = ExternalPrograms {
            git: true,
            helm: true,
        };
        let memory = |limit: u64, programs| {
            let ProgramMemory { git, helm } = ProgramMemory::new(limit * MIB, programs);
            (git / MIB, helm / MIB)
        };
        assert_eq!(memory(128, all), (0, 0));
        assert_eq!(memory(191, all), (0, 0));
        assert_eq!(memory(192, all), (64, 0));
        assert_eq!(memory(351, all), (64, 0));
        assert_eq!(memory(352, all), (64, 160));
        let helm = ExternalPrograms { git: false, ..all };
        assert_eq!(memory(288, helm), (0, 160));
        assert_eq!(memory(512, ExternalPrograms::default()), (0, 0));
    }
}
