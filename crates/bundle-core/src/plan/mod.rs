//! What to do next with a bundle on a cluster: order, readiness, drift, what to prune, which Bundle to keep, what to say.
//! Not here: reading the cluster or writing to it (webhook::reconcile); every function takes what was seen as an argument.

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
pub mod names;
pub mod ownership;
pub mod phases;
pub mod pivot;
pub mod rejection;
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
