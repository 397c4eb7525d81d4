//! Whether this replica can be asked: the gates that must have opened, and the end that begins.
//! Not here: the page that shows it (server::health).

use std::sync::atomic::{AtomicU8, Ordering};

use crate::registrations::Integrity;

/// What must have happened once before the first review. None closes again: what was learnt stays in use while it is refreshed.
/// The registrations are no such gate, since they can be altered at any time: see [`Readiness::registrations`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// The API server has told its version, and serves our kinds.
    Api,
    /// A certificate is served.
    Certificate,
    /// All ProvisionerClasses have been read.
    Classes,
    /// All SignaturePolicies have been read.
    Policies,
}

/// All of them, with what a person calls them.
const GATES: [(Gate, &str); 4] = [
    (Gate::Api, "api"),
    (Gate::Certificate, "certificate"),
    (Gate::Classes, "classes"),
    (Gate::Policies, "policies"),
];

const DRAINING: u8 = 1 << 7;

/// The gates of this process.
#[derive(Debug, Default)]
pub struct Readiness {
    gates: AtomicU8,
    registrations: Integrity,
}

impl Readiness {
    /// Opens a gate.
    pub fn open(&self, gate: Gate) {
        self.gates.fetch_or(1 << gate as u8, Ordering::AcqRel);
    }

    /// Whether that gate is open.
    pub fn is_open(&self, gate: Gate) -> bool {
        self.gates.load(Ordering::Acquire) & (1 << gate as u8) != 0
    }

    /// From now on: not ready, because the process ends.
    pub fn drain(&self) {
        self.gates.fetch_or(DRAINING, Ordering::AcqRel);
    }

    /// Whether the process is ending.
    pub fn is_draining(&self) -> bool {
        self.gates.load(Ordering::Acquire) & DRAINING != 0
    }

    /// Whether our registrations are intact. Not ready while they are not: no review is answered then.
    pub fn registrations(&self) -> &Integrity {
        &self.registrations
    }

    /// Whether reviews should be sent here.
    pub fn is_ready(&self) -> bool {
        !self.is_draining()
            && self.registrations.intact_since().is_some()
            && GATES.iter().all(|(gate, _)| self.is_open(*gate))
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
        lines.push(match self.registrations.intact_since() {
            Some(_) => "[+]registrations ok\n".to_owned(),
            None => format!("[-]registrations: {}\n", self.registrations.faults()),
        });
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
        let registrations = readiness.registrations();
        assert!(!readiness.is_ready());
        registrations.set(Some(jiff::Timestamp::UNIX_EPOCH), Vec::new());
        assert!(readiness.is_ready());
        registrations.set(None, vec!["one is altered".to_owned()]);
        assert!(!readiness.is_ready());
        assert!(
            readiness
                .report()
                .contains("[-]registrations: one is altered\n")
        );
        registrations.set(Some(jiff::Timestamp::UNIX_EPOCH), Vec::new());
        assert!(readiness.report().contains("[+]registrations ok\n"));
        readiness.drain();
        assert!(!readiness.is_ready());
        assert!(readiness.report().contains("[-]shutdown"));
    }
}
