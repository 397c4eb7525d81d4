//! Verification of signatures: forgeries, certificates, proofs, trust roots, and a policy for one
//! workflow.

mod forged;
mod keyless;
mod proof;
mod trust;
mod workflow;
