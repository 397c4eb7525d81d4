//! Permissions of requesters and of the pod: withdrawn, aggregated, and checked again before each
//! write.

mod least_privilege;
mod roles;
mod stale;
mod withdrawn;
