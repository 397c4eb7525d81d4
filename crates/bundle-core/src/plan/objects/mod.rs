//! Objects of a bundle on the cluster: order, drift, scaling, Jobs, upgrades of
//! CustomResourceDefinitions, and their ApplySet.

pub mod applyset;
pub mod crd_upgrade;
pub mod created_namespace;
pub mod drift;
pub mod jobs;
pub mod namespace_objects;
pub mod phases;
pub mod scaling;
