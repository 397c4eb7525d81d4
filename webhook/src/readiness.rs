//! Readiness of this replica: its gates, the webhook registrations, and the state of the shutdown.
//! The module `server::health` serves the readiness.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::registrations::Integrity;

/// A condition that must become true before the first review. A gate never closes again, because
/// loaded data stays in use while it is refreshed. The webhook registrations are not a gate,
/// because they can change at any time ([`Readiness::registrations`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Gate {
    /// The version of the API server is known, and the API server serves the project's own kinds.
    Api,
    /// A serving certificate is loaded.
    Certificate,
    /// All ProvisionerClasses are loaded.
    Classes,
    /// All SignaturePolicies are loaded.
    Policies,
    /// This replica has read or created the Lease of the leader election. Without leader election,
    /// the gate opens when the replica begins to reconcile.
    Lease,
}

/// All gates with their names in the report.
const GATES: [(Gate, &str); 5] = [
    (Gate::Api, "api"),
    (Gate::Certificate, "certificate"),
    (Gate::Classes, "classes"),
    (Gate::Policies, "policies"),
    (Gate::Lease, "lease"),
];

const DRAINING: u8 = 1 << 7;

/// The gates of this process.
#[derive(Debug, Default)]
pub struct Readiness {
    gates: AtomicU8,
    registrations: Integrity,
}

impl Readiness {
    /// Opens a gate, which then stays open.
    pub fn open(&self, gate: Gate) {
        self.gates.fetch_or(1 << gate as u8, Ordering::AcqRel);
    }

    /// Returns true if the gate is open.
    pub fn is_open(&self, gate: Gate) -> bool {
        self.gates.load(Ordering::Acquire) & (1 << gate as u8) != 0
    }

    /// Reports the replica as not ready from now on, because the process is ending.
    pub fn drain(&self) {
        self.gates.fetch_or(DRAINING, Ordering::AcqRel);
    }

    /// Returns true if the process is ending.
    pub fn is_draining(&self) -> bool {
        self.gates.load(Ordering::Acquire) & DRAINING != 0
    }

    /// Returns the integrity of the webhook registrations. The replica is not ready while a
    /// registration is altered, because the webhook rejects all reviews during this time.
    pub fn registrations(&self) -> &Integrity {
        &self.registrations
    }

    /// Returns true if this replica can answer reviews.
    pub fn is_ready(&self) -> bool {
        !self.is_draining()
            && self.registrations.intact_since().is_some()
            && GATES.iter().all(|(gate, _)| self.is_open(*gate))
    }

    /// Returns the readiness in the format of Kubernetes components: one line for each gate, one
    /// for the registrations, and one if the process is ending.
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
    fn replica_is_ready_with_all_gates_open_and_without_shutdown() {
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
