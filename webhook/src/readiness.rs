//! Whether this replica can be asked: the gates that must have opened, and the end that begins.
//! Not here: the page that shows it (server::health).

use std::sync::atomic::{AtomicU8, Ordering};

/// What must have happened once before the first review. None closes again: what was learnt stays in use while it is refreshed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// The API server has told its version, and serves our kinds.
    Api,
    /// A certificate is served.
    Certificate,
    /// Every registration that exists trusts it.
    Registrations,
    /// All ProvisionerClasses have been read.
    Classes,
    /// All SignaturePolicies have been read.
    Policies,
}

/// All of them, with what a person calls them.
const GATES: [(Gate, &str); 5] = [
    (Gate::Api, "api"),
    (Gate::Certificate, "certificate"),
    (Gate::Registrations, "registrations"),
    (Gate::Classes, "classes"),
    (Gate::Policies, "policies"),
];

const DRAINING: u8 = 1 << 7;

/// The gates of this process.
#[derive(Debug, Default)]
pub struct Readiness(AtomicU8);

impl Readiness {
    /// Opens a gate.
    pub fn open(&self, gate: Gate) {
        self.0.fetch_or(1 << gate as u8, Ordering::AcqRel);
    }

    /// Whether that gate is open.
    pub fn is_open(&self, gate: Gate) -> bool {
        self.0.load(Ordering::Acquire) & (1 << gate as u8) != 0
    }

    /// From now on: not ready, because the process ends.
    pub fn drain(&self) {
        self.0.fetch_or(DRAINING, Ordering::AcqRel);
    }

    /// Whether the process is ending.
    pub fn is_draining(&self) -> bool {
        self.0.load(Ordering::Acquire) & DRAINING != 0
    }

    /// Whether reviews should be sent here.
    pub fn is_ready(&self) -> bool {
        !self.is_draining() && GATES.iter().all(|(gate, _)| self.is_open(*gate))
    }

    /// One line a gate, as Kubernetes components show theirs.
    pub fn report(&self) -> String {
        let mut lines: Vec<String> = GATES
            .iter()
            .map(|(gate, name)| {
                if self.is_open(*gate) {
                    format!("[+]{name} ok\n")
                } else {
                    format!("[-]{name} waiting\n")
                }
            })
            .collect();
        if self.is_draining() {
            lines.push("[-]shutdown\n".to_owned());
        }
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_is_every_gate_open_and_no_end_in_sight() {
        let readiness = Readiness::default();
        for (gate, name) in GATES {
            assert!(!readiness.is_ready());
            assert!(readiness.report().contains(&format!("[-]{name} waiting")));
            readiness.open(gate);
            assert!(readiness.report().contains(&format!("[+]{name} ok")));
        }
        assert!(readiness.is_ready());
        readiness.drain();
        assert!(!readiness.is_ready());
        assert!(readiness.report().contains("[-]shutdown"));
    }
}
