//! Plans of reconciles as pure functions: steps, order of objects, health, drift, removal, retries
//! and conditions. Callers pass all observed facts. `webhook::reconcile` reads and writes the
//! cluster.

mod apply;
mod authorization;
pub mod bundle;
pub mod conditions;
mod content_key;
mod deployment;
pub mod health;
pub mod inventory;
mod objects;
pub mod removal;
pub mod retry;

pub use apply::{ignore, normalize, ownership, placement, replace, replacement_trial, unchanged};
pub use authorization::{consent, decision, downgrade, targets};
pub use deployment::{package_rules, revisions, rollout, rounds, status, steps, summary};
pub use objects::{
    applyset, crd_upgrade, created_namespace, drift, jobs, namespace_objects, phases, scaling,
};
pub use retry::{backoff, rate, restores};
