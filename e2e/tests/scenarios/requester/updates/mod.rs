//! Upgrades of installed objects: replacements, scaled workloads, and failed upgrades.

mod held;
mod replacing;
mod scaling;
mod upgrade;
