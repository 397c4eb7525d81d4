//! Verbs that copy bundles, and registries with faults.

mod copying;
mod referrers;
mod registries;
mod registry_faults;
