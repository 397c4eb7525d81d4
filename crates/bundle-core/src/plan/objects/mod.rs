//! Objects of a bundle on the cluster: order, drift, scaling, Jobs, and their ApplySet.

pub mod applyset;
pub mod created_namespace;
pub mod drift;
pub mod jobs;
pub mod phases;
pub mod scaling;
