//! The rules of bundles, as pure functions over plain data: what is admitted, what fits, what to do next.
//! Not here: files, clocks, networks, randomness, Kubernetes clients. What a rule needs of them it gets as an argument.

pub mod check;
pub mod content;
pub mod diagnostic;
pub mod footprint;
pub mod format;
pub mod images;
pub mod json;
pub mod names;
pub mod object;
pub mod package;
pub mod plan;
pub mod policy;
pub mod reference;
pub mod review;
pub mod rights;
pub mod version;
pub mod yaml;
