//! Plans of reconciles as pure functions: steps, order of objects, health, drift, removal, retries
//! and conditions. All observed facts are arguments; `webhook::reconcile` reads and writes the
//! cluster.

pub mod applyset;
pub mod backoff;
pub mod bundle;
pub mod conditions;
pub mod consent;
pub mod created_namespace;
pub mod decision;
pub mod downgrade;
pub mod drift;
pub mod health;
pub mod ignore;
pub mod inventory;
pub mod jobs;
pub mod ownership;
pub mod phases;
pub mod pivot;
pub mod removal;
pub mod replace;
pub mod replacement_trial;
pub mod retry;
pub mod rounds;
pub mod scaling;
pub mod settle;
pub mod status;
pub mod steps;
pub mod summary;
pub mod targets;
